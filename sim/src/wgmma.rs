//! Warpgroup matrix multiply-accumulate (PTX ISA 9.7.15): descriptors, register fragments, products.

mod descriptor;
mod fragment;
mod instruction;

pub use descriptor::decode_descriptor;
pub use fragment::{AFragment, Tile};
pub use instruction::{Accumulator, Arithmetic, Instruction, OperandA};
