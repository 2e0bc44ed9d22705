//! Which Hopper kernel serves a problem. Mirrors `kernels/sm90/forward/config.h`.

use super::driver::{Gpu, Kernel};
use super::forward::{self, Forward};
use super::tensor_map::Columns;
use crate::error::Result;
use crate::plan::Scheduler;
use crate::problem::Problem;
use crate::schedule::{BackwardDeal, blocks};

/// Rows of a forward tile: queries, or queries of several heads.
const FORWARD_BLOCK_M: u32 = 128;
/// Rows of the boxes in which O is stored: those of a warp.
const FORWARD_BOX_O: u32 = 16;
/// Queries of a step of the backward, and of a block of its statistics.
pub(super) const BACKWARD_BLOCK_M: i64 = 64;
/// Shared memory of a CTA.
const SHARED_BYTES: u32 = 227 * 1024;
/// Threads of a CTA of the kernels before and after the backward.
const SIDE_THREADS: u32 = 256;

/// How many query heads of a key head share tiles: a power of two, the smallest that leaves the fewest tiles. With many
/// queries there is next to no padding to save.
fn packed_heads(problem: &Problem) -> u32 {
    const LONGEST: i64 = 1024;
    if problem.limits.seqlen_q > LONGEST {
        return 1;
    }
    // Of as many query heads as the largest pack.
    let tiles = |pack: &u32| {
        blocks(problem.limits.seqlen_q * i64::from(*pack), FORWARD_BLOCK_M.into()) * i64::from(FORWARD_BOX_O / pack)
    };
    let packs = [1, 2, 4, 8, FORWARD_BOX_O].into_iter().filter(|&pack| (problem.group() as u32).is_multiple_of(pack));
    packs.min_by_key(tiles).unwrap_or(1)
}

/// The forward kernel of a problem, loaded.
pub(super) fn forward(gpu: &Gpu, problem: &Problem) -> Result<Forward> {
    let dim = (problem.head_dim as u32).next_multiple_of(64);
    let common = problem.broadcast_q && !forward::is_masked(problem) && dim <= 128;
    let pack = if common { packed_heads(problem) } else { 1 };
    // Few rows: several CTAs of one consumer warpgroup each share a multiprocessor, on different sequences.
    let small = common && problem.limits.seqlen_q * i64::from(pack) <= 64;
    let (ctas, block_m, block_n, slots, q_buffers) = match (small, dim) {
        (true, 64) => (3, 64, 64, 7, 1),
        (true, _) => (2, 64, 64, 5, 1),
        (false, 64) => (1, FORWARD_BLOCK_M, 128, 8, 2),
        (false, 128) => (1, FORWARD_BLOCK_M, 128, 4, 2),
        (false, _) => (1, FORWARD_BLOCK_M, 64, 4, if dim == 192 { 2 } else { 1 }),
    };
    let o_buffers = u32::from(dim <= 128);
    let tiles = 8;
    let (suffix, unit) = forward::suffixes(problem, dim);
    let (packs, short) = (if pack > 1 { "_pack" } else { "" }, if small { "_m64" } else { "" });
    let name = format!("jfa_sm90_forward_{suffix}{packs}{short}");
    let (threads, row_bytes) = (128 + 2 * block_m, dim * 2);
    let shared = (q_buffers + o_buffers) * block_m * row_bytes
        + slots * block_n * row_bytes
        + tiles * 64
        + 8 * 2 * (slots + tiles + q_buffers);
    let kernel = Kernel::load(gpu, &format!("sm90_forward_{unit}"), &name, threads, shared)?;
    Ok(Forward {
        kernel,
        name,
        block_m: block_m.into(),
        block_n: block_n.into(),
        box_q: block_m,
        box_o: FORWARD_BOX_O,
        takes_parts: false,
        ctas,
        pack,
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
    /// Columns of it.
    pub store_columns: Columns,
    /// Elements of a row of dQ's sums.
    pub dim: i64,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// CTAs.
    pub workers: u32,
    pub deal: BackwardDeal,
    /// Who hands out the tiles, if they are handed out.
    pub hands_out: Scheduler,
    /// Partial sums of dQ.
    pub parts: u32,
}

impl Backward {
    /// How CTAs come by their tiles. With cluster launch control the grid has a cluster for each.
    pub(super) fn scheduler(&self) -> Scheduler {
        match self.deal {
            BackwardDeal::HandedOut => self.hands_out,
            _ => Scheduler::Static,
        }
    }

    /// Tiles of one key head of a batch, those that fill up clusters included.
    pub(super) fn entries_at_most(&self, total_kv: i64, batch: i64) -> i64 {
        let cluster = i64::from(self.cluster);
        super::blocks_at_most(total_kv, batch, self.block_n * cluster) * cluster
    }
}

/// Whether the Q-stationary kernel serves a problem with `workers` CTAs: Q and the sums of dQ of one head fit one CTA,
/// and few CTAs are left over.
fn is_q_stationary(problem: &Problem, workers: u32) -> bool {
    let heads = problem.heads_q as u32;
    problem.broadcast_q
        && problem.mask.hides_nothing()
        && problem.group() == 1
        && problem.head_dim <= 128
        && (1..=2 * BACKWARD_BLOCK_M).contains(&problem.limits.seqlen_q)
        && workers / heads * heads * 10 >= workers * 8
}

/// How many of `lanes` CTAs of a head add to the same partial sum of dQ, so that all `part_bytes` of them stay in L2:
/// as few as that allows, or up to twice as many if more CTAs then have work.
fn chain(lanes: u32, part_bytes: i64) -> u32 {
    const BUDGET: i64 = 20 << 20;
    let parts = (BUDGET / part_bytes.max(1)).clamp(1, lanes.max(1).into()) as u32;
    let least = lanes.max(1).div_ceil(parts);
    (least..=least * 2).rev().max_by_key(|chain| lanes / chain * chain).unwrap_or(least)
}

/// The kernel before ("prepare") or after ("finish") the backward.
fn side(gpu: &Gpu, role: &str, dtype: &str, dim: i64) -> Result<Kernel> {
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
    (problem.dtype.name(), dim)
}

/// The backward kernels of a problem, loaded.
pub(super) fn backward(gpu: &Gpu, problem: &Problem, workers: u32) -> Result<Backward> {
    let (dtype, dim) = variant(problem);
    if !is_q_stationary(problem, workers) {
        let name =
            format!("jfa_sm90_backward_{dtype}_kv_d{dim}{}", if problem.mask.hides_nothing() { "" } else { "_mask" });
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
        store_columns: Columns::Panels(1),
        ..kv_stationary(gpu, problem, workers, kernel, name)?
    })
}

/// A K/V-stationary kernel with what goes with it: the tiles and the schedule of Hopper's.
pub(super) fn kv_stationary(
    gpu: &Gpu,
    problem: &Problem,
    workers: u32,
    kernel: Kernel,
    name: String,
) -> Result<Backward> {
    let (dtype, dim) = variant(problem);
    let heads = problem.heads_kv as u32;
    let (deal, parts) = if problem.deterministic && problem.broadcast_q {
        let part_bytes = problem.limits.seqlen_q * dim * 4 * i64::from(problem.heads_q);
        let chain = if problem.mask.hides_nothing() { chain(workers / heads, part_bytes) } else { 1 };
        let parts = (workers / heads / chain).max(1);
        (BackwardDeal::Lanes { lanes: parts * chain, chain }, parts)
    } else {
        (BackwardDeal::HandedOut, 1)
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
        store_rows: 64,
        store_columns: Columns::Panels(2),
        dim,
        cluster: 1,
        workers,
        deal,
        hands_out: Scheduler::Atomic,
        parts,
    })
}
