//! Which Hopper kernel serves a problem. Mirrors `kernels/sm90/forward/config.h`.

use super::driver::{Gpu, Kernel};
use super::forward::{self, Forward};
use super::tensor_map::Columns;
use crate::error::Result;
use crate::problem::{Dtype, Problem};
use crate::schedule::{BackwardDeal, blocks};

/// Queries of a forward tile.
const FORWARD_BLOCK_M: u32 = 128;
/// Queries of a step of the backward, and of a block of its statistics.
pub(super) const BACKWARD_BLOCK_M: i64 = 64;
/// Shared memory of a CTA.
const SHARED_BYTES: u32 = 227 * 1024;
/// Threads of a CTA of the kernels before and after the backward.
const SIDE_THREADS: u32 = 256;

/// The forward kernel of a problem, loaded.
pub(super) fn forward(gpu: &Gpu, problem: &Problem) -> Result<Forward> {
    let dim = (problem.head_dim as u32).next_multiple_of(64);
    let block_n: u32 = if dim <= 128 { 128 } else { 64 };
    let (slots, q_buffers) = (if dim == 64 { 8 } else { 4 }, if dim <= 192 { 2 } else { 1 });
    let o_buffers = u32::from(dim <= 128);
    let tiles = 8;
    let (suffix, unit) = forward::suffixes(problem, dim);
    let name = format!("jfa_sm90_forward_{suffix}");
    let row_bytes = dim * 2;
    let shared = (q_buffers + o_buffers) * FORWARD_BLOCK_M * row_bytes
        + slots * block_n * row_bytes
        + tiles * 64
        + 8 * 2 * (slots + tiles + q_buffers);
    let kernel = Kernel::load(gpu, &format!("sm90_forward_{unit}"), &name, 384, shared)?;
    Ok(Forward {
        kernel,
        name,
        block_m: FORWARD_BLOCK_M.into(),
        block_n: block_n.into(),
        box_q: FORWARD_BLOCK_M,
        box_o: 16,
        takes_parts: false,
    })
}

/// The backward kernels and their tile.
#[derive(Clone, Debug)]
pub(super) struct Backward {
    pub prepare: Kernel,
    pub kernel: Kernel,
    pub finish: Kernel,
    pub name: String,
    /// Keys of a tile.
    pub block_n: i64,
    /// Queries of a box of Q and dO.
    pub box_q: i64,
    /// Columns of a box of Q, K, V and dO.
    pub columns: Columns,
    /// Rows of a box of dK and dV.
    pub store_rows: i64,
    /// Elements of a row of dQ's sums.
    pub dim: i64,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// Clusters take over the tiles of others that have not started; the grid has one for each.
    pub launch_control: bool,
    /// CTAs.
    pub workers: u32,
    pub deal: BackwardDeal,
    /// Partial sums of dQ.
    pub parts: u32,
}

impl Backward {
    /// Tiles of one key head of a batch, those that fill up clusters included.
    pub(super) fn entries_at_most(&self, total_kv: i64, batch: i64) -> i64 {
        let cluster = i64::from(self.cluster);
        super::blocks_at_most(total_kv, batch, self.block_n * cluster) * cluster
    }
}

/// Whether the Q-stationary kernel serves a problem with `workers` CTAs: Q and the sums of dQ of one head fit one CTA,
/// and few CTAs are left over.
fn is_q_stationary(problem: &Problem, workers: u32) -> bool {
    let unmasked = problem.mask.left.is_none() && problem.mask.right.is_none();
    let heads = problem.heads_q as u32;
    problem.broadcast_q
        && unmasked
        && problem.group() == 1
        && problem.head_dim <= 128
        && (1..=2 * BACKWARD_BLOCK_M).contains(&problem.limits.seqlen_q)
        && workers / heads * heads * 10 >= workers * 8
}

/// How many of `lanes` CTAs of a head add to the same partial sum of dQ, so that all `part_bytes` of them stay in L2.
fn chain(lanes: u32, part_bytes: i64) -> u32 {
    const BUDGET: i64 = 24 << 20;
    let parts = (BUDGET / part_bytes.max(1)).clamp(1, lanes.max(1).into()) as u32;
    lanes.max(1).div_ceil(parts)
}

/// The kernel before ("prepare") or after ("finish") the backward.
pub(super) fn side(gpu: &Gpu, role: &str, dtype: &str, dim: i64) -> Result<Kernel> {
    let name = format!("jfa_backward_{role}_{dtype}_d{dim}");
    Kernel::load(gpu, &format!("backward_{dtype}"), &name, SIDE_THREADS, 0)
}

/// Type and head dimension in shared memory, as they occur in names of kernels.
pub(super) fn variant(problem: &Problem) -> (&'static str, i64) {
    let dim = match problem.head_dim {
        ..=64 => 64,
        65..=128 => 128,
        _ => 256,
    };
    (if problem.dtype == Dtype::Fp16 { "fp16" } else { "bf16" }, dim)
}

/// The backward kernels of a problem, loaded.
pub(super) fn backward(gpu: &Gpu, problem: &Problem, workers: u32) -> Result<Backward> {
    let (dtype, dim) = variant(problem);
    let masked = problem.mask.left.is_some() || problem.mask.right.is_some();
    if !is_q_stationary(problem, workers) {
        let name = format!("jfa_sm90_backward_{dtype}_kv_d{dim}{}", if masked { "_mask" } else { "" });
        let kernel = Kernel::load(gpu, &format!("sm90_backward_{dtype}_kv_d{dim}"), &name, 384, SHARED_BYTES)?;
        return kv_stationary(gpu, problem, workers, kernel, name);
    }
    let box_q = blocks(problem.limits.seqlen_q, BACKWARD_BLOCK_M) * BACKWARD_BLOCK_M;
    let name = format!("jfa_sm90_backward_{dtype}_q{box_q}_d{dim}");
    let kernel = Kernel::load(gpu, &format!("sm90_backward_{dtype}_q_d{dim}"), &name, 512, SHARED_BYTES)?;
    let lanes = workers / problem.heads_q as u32;
    Ok(Backward {
        block_n: 64,
        box_q,
        workers: lanes * problem.heads_q as u32,
        deal: BackwardDeal::Ranges(lanes),
        parts: lanes,
        ..kv_stationary(gpu, problem, workers, kernel, name)?
    })
}

/// A K/V-stationary kernel with what goes with it: the tiles of Hopper's, dealt ahead.
pub(super) fn kv_stationary(
    gpu: &Gpu,
    problem: &Problem,
    workers: u32,
    kernel: Kernel,
    name: String,
) -> Result<Backward> {
    let (dtype, dim) = variant(problem);
    let heads = problem.heads_kv as u32;
    let masked = problem.mask.left.is_some() || problem.mask.right.is_some();
    let (deal, parts) = if problem.deterministic && problem.broadcast_q {
        let part_bytes = problem.limits.seqlen_q * dim * 4 * i64::from(problem.heads_q);
        let chain = if masked { 1 } else { chain(workers / heads, part_bytes) };
        let parts = (workers / heads / chain).max(1);
        (BackwardDeal::Lanes { lanes: parts * chain, chain }, parts)
    } else {
        (BackwardDeal::RoundRobin, 1)
    };
    let workers = match deal {
        BackwardDeal::Lanes { lanes, .. } => workers.min(lanes * heads),
        _ => workers,
    };
    Ok(Backward {
        prepare: side(gpu, "prepare", dtype, dim)?,
        kernel,
        finish: side(gpu, "finish", dtype, dim)?,
        name,
        block_n: if dim == 256 { 64 } else { 128 },
        box_q: BACKWARD_BLOCK_M,
        columns: Columns::All,
        store_rows: 16,
        dim,
        cluster: 1,
        launch_control: false,
        workers,
        deal,
        parts,
    })
}
