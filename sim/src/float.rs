//! Floating-point formats and approximate functions of PTX.

mod approx;
mod coefficients;
mod format;
mod interpolation;
mod scale;

pub use approx::{Approx, Function};
pub use format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, Format, Nan, Rounding, TF32, tf32_operand};
pub use scale::{encode_ue8m0, ue4m3, ue8m0};
