//! Which Blackwell kernel serves a problem. Mirrors `kernels/sm100/forward/config.h`.

use super::driver::{Gpu, Kernel};
use super::forward::{self, Forward};
use super::sm90::{self, Backward};
use crate::error::Result;
use crate::problem::{Dtype, Problem};
use crate::schedule::BackwardDeal;

/// Shared memory of a CTA.
const SHARED_BYTES: u32 = 227 * 1024;
/// Rows of a product: the lanes of Tensor Memory.
const ROWS: u32 = 128;

/// The forward kernel of a problem, loaded.
pub(super) fn forward(gpu: &Gpu, problem: &Problem) -> Result<Forward> {
    let dim = (problem.head_dim as u32).next_multiple_of(64);
    // Two blocks of queries side by side, if Tensor Memory has room for both.
    let groups = if dim <= 128 { 2 } else { 1 };
    let (suffix, unit) = forward::suffixes(problem, dim);
    let name = format!("jfa_sm100_forward_{suffix}");
    let kernel = Kernel::load(gpu, &format!("sm100_forward_{unit}"), &name, 128 * (groups + 2), SHARED_BYTES)?;
    Ok(Forward {
        kernel,
        name,
        block_m: (groups * ROWS).into(),
        block_n: if dim <= 128 { 128 } else { 64 },
        box_q: ROWS,
        box_o: ROWS,
        takes_parts: true,
    })
}

/// The backward of a problem: there is no kernel for it yet, so that only its lists are made.
pub(super) fn backward(gpu: &Gpu, problem: &Problem, workers: u32) -> Result<Backward> {
    let dim = match problem.head_dim {
        ..=64 => 64,
        65..=128 => 128,
        _ => 256,
    };
    let dtype = if problem.dtype == Dtype::Fp16 { "fp16" } else { "bf16" };
    Ok(Backward {
        prepare: sm90::side(gpu, "prepare", dtype, dim)?,
        kernel: None,
        finish: sm90::side(gpu, "finish", dtype, dim)?,
        name: "none".into(),
        block_n: 128,
        box_q: sm90::BACKWARD_BLOCK_M,
        dim,
        workers,
        deal: BackwardDeal::RoundRobin,
        parts: 1,
    })
}
