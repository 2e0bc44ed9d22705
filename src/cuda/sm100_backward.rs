//! Which Blackwell kernel serves the backward of a problem. Mirrors `kernels/sm100/backward/config.h`.

use super::driver::{Gpu, Kernel};
use super::sm90::{self, Backward};
use super::tensor_map::Columns;
use crate::error::Result;
use crate::plan::Scheduler;
use crate::problem::Problem;
use crate::schedule::BackwardDeal;

/// Keys of a tile.
const BLOCK_N: i64 = 128;
/// Shared memory of a CTA.
const SHARED_BYTES: u32 = 227 * 1024;

/// Whether pairs of CTAs serve a problem: they have one head dimension, no fixed order of sums, and lose to single CTAs
/// where many sequences have an odd number of few blocks. The environment variable `JFA_SM100_PAIRS` decides otherwise,
/// 0 or 1, to compare the two.
fn takes_pairs(problem: &Problem, dim: i64, workers: u32) -> bool {
    let possible = dim == 128 && !problem.deterministic && workers >= 2;
    let long = problem.limits.total_kv >= 4 * BLOCK_N * problem.limits.batch;
    possible && std::env::var("JFA_SM100_PAIRS").map_or(long, |value| value != "0")
}

/// The backward kernels of a problem, loaded.
pub(super) fn backward(gpu: &Gpu, problem: &Problem, workers: u32) -> Result<Backward> {
    let (dtype, dim) = sm90::variant(problem);
    let pairs = takes_pairs(problem, dim, workers);
    let name = format!("jfa_sm100_backward_{dtype}_d{dim}{}", if pairs { "_pair" } else { "" });
    let kernel = Kernel::load(gpu, &format!("sm100_backward_{dtype}"), &name, 512, SHARED_BYTES)?;
    let common = sm90::kv_stationary(gpu, problem, workers, kernel, name)?;
    let cluster = if pairs { 2 } else { 1 };
    let common = Backward { block_n: BLOCK_N, cluster, workers: common.workers / cluster * cluster, ..common };
    let limits = &problem.limits;
    let tiles = common.entries_at_most(limits.total_kv, limits.batch) * i64::from(problem.heads_kv);
    // A launch of a CTA for each tile uses all multiprocessors, and its order is open. In order, a counter hands tiles
    // out: nobody waits for a CTA that has not begun.
    let launch_control = workers == gpu.multiprocessors && tiles <= i32::MAX.into();
    Ok(Backward {
        box_q: if pairs || dim > 128 { 64 } else { 128 },
        columns: if pairs { Columns::Panels(1) } else { Columns::All },
        store_rows: 32,
        store_columns: Columns::Panels(1),
        hands_out: if problem.deterministic { Scheduler::Atomic } else { Scheduler::ClusterLaunchControl },
        deal: match common.deal {
            BackwardDeal::HandedOut if !problem.deterministic && !launch_control => BackwardDeal::RoundRobin,
            deal => deal,
        },
        ..common
    })
}
