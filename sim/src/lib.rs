//! cudasim: a `libcuda.so.1` that executes PTX on the CPU, with the asynchrony of the machine, and reports races,
//! deadlocks and misuse. It knows nothing of what the kernels compute.

pub mod clc;
mod driver;
pub mod error;
pub mod float;
pub mod harness;
mod image;
mod machine;
mod map;
pub mod matrix;
pub mod mbarrier;
mod program;
mod ptx;
pub mod tcgen05;
pub mod tensor_map;
pub mod tma;
pub mod tmem;
pub mod unconfirmed;
pub mod wgmma;
