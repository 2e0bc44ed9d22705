//! PTX text: tokens, syntax tree, resolved names.

pub mod ast;
mod lexer;
mod parser;
mod resolve;
mod special;

pub use parser::parse;
pub use special::Special;
