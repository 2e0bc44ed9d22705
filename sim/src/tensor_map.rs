//! Tensor maps: `cuTensorMapEncodeTiled` (CUDA driver API, "Tensor Map Object Management"), the 128-byte object, and
//! `tensormap.replace` (PTX ISA 9.7.9.26).

mod encode;
mod object;
mod replace;

pub use encode::EncodeTiled;
pub use object::{DataType, Fill, Interleave, L2Promotion, MAX_RANK, OBJECT_ALIGNMENT, OBJECT_BYTES, TensorMap};
pub use replace::Field;
