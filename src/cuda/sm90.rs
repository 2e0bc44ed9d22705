//! Which Hopper kernel serves a problem. Mirrors `kernels/sm90/forward/config.h`.

use super::driver::{Gpu, Kernel};
use crate::error::Result;
use crate::problem::{Dtype, Problem};

/// Queries of a forward tile.
pub(super) const FORWARD_BLOCK_M: i64 = 128;
/// Rows of the boxes in which O is stored.
pub(super) const FORWARD_STORE_ROWS: u32 = 16;
/// Keys of a backward tile.
pub(super) const BACKWARD_BLOCK_N: i64 = 128;

/// A forward kernel and its tile.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub kernel: Kernel,
    pub name: String,
    pub block_n: i64,
}

/// The forward kernel of a problem, loaded.
pub(super) fn forward(gpu: &Gpu, problem: &Problem) -> Result<Forward> {
    let dim = (problem.head_dim as u32).next_multiple_of(64);
    let block_n: u32 = if dim <= 128 { 128 } else { 64 };
    let (slots, q_buffers) = (if dim == 64 { 8 } else { 4 }, if dim <= 192 { 2 } else { 1 });
    let o_buffers = u32::from(dim <= 128);
    let tiles = 8;
    let masked = problem.mask.left.is_some() || problem.mask.right.is_some() || problem.scale < 0.0;
    let dtype = if problem.dtype == Dtype::Fp16 { "fp16" } else { "bf16" };
    let suffix = if masked { "_mask" } else { "" };
    let name = format!("jfa_sm90_forward_{dtype}_d{dim}{suffix}");
    let row_bytes = dim * 2;
    let shared = (q_buffers + o_buffers) * FORWARD_BLOCK_M as u32 * row_bytes
        + slots * block_n * row_bytes
        + tiles * 64
        + 8 * 2 * (slots + tiles + q_buffers);
    let unit = format!("sm90_forward_{dtype}_d{dim}");
    let kernel = Kernel::load(gpu, &unit, &name, 384, shared)?;
    Ok(Forward { kernel, name, block_n: block_n.into() })
}
