//! PTX text: tokens, syntax tree, resolved names.

pub mod ast;
mod lexer;
mod operand;
mod parser;
mod resolve;
mod special;
mod variable;

pub use parser::parse;
pub use special::Special;
