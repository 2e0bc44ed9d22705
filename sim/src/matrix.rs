//! What wgmma and tcgen05.mma have in common: operands in shared memory, elements, products.

mod element;
mod layout;
mod product;
mod swizzle;
mod truncated;

pub use element::{Element, Packing};
pub use layout::{Layout, Major, MatrixDescriptor, SharedRead};
pub use product::{multiply_f32, multiply_s32};
pub use swizzle::Swizzle;
pub use truncated::{Rounded, Truncated};
