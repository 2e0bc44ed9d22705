//! Which Blackwell kernel serves a problem. Mirrors `kernels/sm100/forward/config.h`.

use super::driver::{Gpu, Kernel};
use super::forward::{self, Forward};
use crate::error::Result;
use crate::problem::Problem;

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
        ctas: 1,
        pack: 1,
    })
}
