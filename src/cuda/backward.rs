//! The launches of the backward: row statistics, the kernel itself, dQ from its sums.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::driver::Launch;
use super::params::{BackwardParams, BackwardSchedule, Mask};
use super::tensor_map::{self, Shape, TensorMap};
use super::{Plan, sm90};
use crate::error::Result;
use crate::plan::{Backward, Extent, Scheduler, Tensor};
use crate::problem::{Dtype, Problem};
use crate::schedule::{BackwardDeal, blocks};
use crate::workspace::Carver;

/// CTAs of the kernels before and after the backward, for each multiprocessor.
const SIDE_CTAS: u32 = 12;

/// Sizes of the buffers in the workspace, in floats.
struct Sizes {
    /// Blocks of statistics of a head.
    stat_blocks: i64,
    /// Blocks of dQ of a head in one partial sum.
    grad_q_blocks: i64,
    stats: i64,
    sums: i64,
    turns: i64,
}

/// Counters of every call, in floats: places of the list that were handed out, then `Progress` of the kernels.
const COUNTERS: i64 = 4;

impl Sizes {
    /// The sums with the counters behind them.
    fn zeroed(&self) -> i64 {
        self.sums + self.turns + COUNTERS
    }
}

impl Plan {
    fn sizes(&self, problem: &Problem, batch: i64, total_o: i64) -> Sizes {
        let block = sm90::BACKWARD_BLOCK_M;
        let heads = i64::from(problem.heads_q);
        let stat_blocks = total_o / block + batch;
        let grad_q_blocks = if problem.broadcast_q { blocks(problem.limits.seqlen_q, block) } else { stat_blocks };
        let sum_blocks = i64::from(self.backward.parts) * heads * grad_q_blocks;
        Sizes {
            stat_blocks,
            grad_q_blocks,
            stats: heads * stat_blocks * 2 * block,
            sums: sum_blocks * block * self.backward.dim,
            turns: if self.takes_turns(problem) { (sum_blocks + 3) / 4 * 4 } else { 0 },
        }
    }

    /// Whether CTAs add to the same sums of dQ in a fixed order.
    fn takes_turns(&self, problem: &Problem) -> bool {
        match self.backward.deal {
            BackwardDeal::RoundRobin | BackwardDeal::HandedOut => problem.deterministic,
            BackwardDeal::Lanes { chain, .. } => chain > 1,
            BackwardDeal::Ranges(_) => false,
        }
    }

    /// Counts or carves the backward's workspace: row statistics, then sums of dQ and counters.
    pub fn carve_backward(&self, problem: &Problem, carver: &mut Carver) -> (*mut f32, *mut f32) {
        let limits = &problem.limits;
        let sizes = self.sizes(problem, limits.batch, problem.rows_o(limits.batch, limits.total_q));
        (carver.take(sizes.stats as usize), carver.take(sizes.zeroed() as usize))
    }

    /// Enqueues dQ, dK and dV.
    ///
    /// # Safety
    /// The tensors and the carver's memory are device memory that holds the rows of the batch; `stream` is a stream of
    /// this device.
    ///
    /// # Errors
    /// `InvalidArgument` for host memory, `Cuda`.
    pub unsafe fn backward(
        &self,
        problem: &Problem,
        extent: &Extent,
        args: &Backward,
        carver: &mut Carver,
        stream: *mut c_void,
    ) -> Result<()> {
        if extent.total_q == 0 && extent.total_kv == 0 {
            return Ok(());
        }
        let _guard = self.gpu.enter()?;
        for (name, pointer) in [
            ("q", args.q.data),
            ("k", args.k.data),
            ("v", args.v.data),
            ("o", args.o.data),
            ("grad_o", args.grad_o.data),
            ("lse", args.lse.cast_mut().cast()),
            ("grad_q", args.grad_q.data),
            ("grad_k", args.grad_k.data),
            ("grad_v", args.grad_v.data),
        ] {
            self.gpu.check_pointer(name, pointer)?;
        }
        let (stats, sums) = self.carve_backward(problem, carver);
        self.gpu.check_pointer("workspace", stats.cast())?;
        let params = self.backward_params(problem, extent, args, stats, sums);
        let maps = self.backward_maps(problem, extent, args)?;
        let params = (&raw const params).cast();
        let side = Launch { grid: self.multiprocessors * SIDE_CTAS, cluster: 1, dependent: true };
        let cluster = self.backward.cluster;
        let grid = match self.backward.scheduler() {
            Scheduler::ClusterLaunchControl => {
                let tiles = self.backward.entries_at_most(extent.total_kv, extent.batch) * i64::from(problem.heads_kv);
                (tiles as u32).max(cluster) // a batch of no sequences has none
            }
            _ => self.backward.workers,
        };
        let main = Launch { grid, cluster, dependent: true };
        // SAFETY: the parameters match the kernels'; the caller answers for the stream.
        unsafe {
            self.backward.prepare.launch(side, stream, [params])?;
            self.backward.kernel.launch(main, stream, [(&raw const maps).cast(), params])?;
            // The sums of a broadcast Q are few: the kernel itself makes dQ of them.
            if problem.broadcast_q { Ok(()) } else { self.backward.finish.launch(side, stream, [params]) }
        }
    }

    fn backward_params(
        &self,
        problem: &Problem,
        extent: &Extent,
        args: &Backward,
        stats: *mut f32,
        sums: *mut f32,
    ) -> BackwardParams {
        let sizes = self.sizes(problem, extent.batch, extent.total_o);
        let (lanes, chain) = match self.backward.deal {
            BackwardDeal::RoundRobin | BackwardDeal::HandedOut => (0, 1),
            BackwardDeal::Lanes { lanes, chain } => (lanes, chain),
            BackwardDeal::Ranges(lanes) => (lanes, 1),
        };
        let at = |floats: i64| sums.wrapping_add(floats as usize);
        let counters: *mut u32 = at(sizes.sums + sizes.turns).cast();
        // Ranges write their sums whole, those of packed Q are zeroed block by block.
        let ranges = matches!(self.backward.deal, BackwardDeal::Ranges(_));
        let kept = if ranges || !problem.broadcast_q { sizes.sums } else { 0 };
        BackwardParams {
            forward: self.forward_schedule(problem),
            schedule: BackwardSchedule {
                state: self.state.address,
                sequences: self.sequences.address,
                entries: self.backward_entries.address,
                unseen: self.unseen_entries.address,
                heads: problem.heads_kv as u32,
                lanes,
                chain,
                launch_control: (self.backward.scheduler() == Scheduler::ClusterLaunchControl).into(),
            },
            mask: Mask::new(problem),
            scale: problem.scale,
            scale_log2: problem.scale * std::f32::consts::LOG2_E,
            group: problem.group(),
            head_dim: problem.head_dim,
            panel_boxes: tensor_map::panel_boxes(problem.head_dim),
            broadcast_q: problem.broadcast_q.into(),
            lse_begin_scale: if problem.broadcast_q { problem.heads_q } else { 1 },
            ragged_end: super::ragged_end(problem) as i32,
            ordered: problem.deterministic.into(),
            accumulate: args.accumulate.bits(),
            grad_q_fp32: (problem.grad_q_dtype == Dtype::Fp32).into(),
            stat_blocks: sizes.stat_blocks as i32,
            grad_q_blocks: sizes.grad_q_blocks as i32,
            parts: self.backward.parts as i32,
            seqlen_q: problem.limits.seqlen_q as i32,
            batch: extent.batch as u32,
            tile_keys: (self.backward.block_n * i64::from(self.backward.cluster)) as i32,
            lse_head_stride: if problem.broadcast_q { problem.limits.seqlen_q } else { extent.total_o },
            zero_floats: sizes.zeroed() - kept,
            lse: args.lse,
            stats,
            sums,
            turns: if sizes.turns > 0 { at(sizes.sums).cast() } else { null_mut() },
            zeros: at(kept),
            places: if self.backward.scheduler() == Scheduler::Atomic { counters } else { null_mut() },
            progress: counters.wrapping_add(1),
            o: (&args.o).into(),
            grad_o: (&args.grad_o).into(),
            grad_q: (&args.grad_q).into(),
            grad_k: (&args.grad_k).into(),
            grad_v: (&args.grad_v).into(),
        }
    }

    /// Maps of Q, K, V, dO, dK and dV, in the order of the kernels' parameter. A tensor without rows is never touched,
    /// and has the map of another one.
    fn backward_maps(&self, problem: &Problem, extent: &Extent, args: &Backward) -> Result<[TensorMap; 6]> {
        let map = |tensor: &Tensor, rows, heads, box_rows: i64, columns| {
            let (tensor, rows, heads) = match rows {
                0 if extent.total_kv > 0 => (&args.k, extent.total_kv, problem.heads_kv),
                0 => (&args.q, extent.total_q, problem.heads_q),
                _ => (tensor, rows, heads),
            };
            let shape = Shape { rows, heads, head_dim: problem.head_dim, ragged_end: super::ragged_end(problem) };
            TensorMap::jagged(problem.dtype, tensor, &shape, box_rows as u32, columns)
        };
        let &sm90::Backward { box_q, block_n, store_rows, columns, store_columns, .. } = &self.backward;
        Ok([
            map(&args.q, extent.total_q, problem.heads_q, box_q, columns)?,
            map(&args.k, extent.total_kv, problem.heads_kv, block_n, columns)?,
            map(&args.v, extent.total_kv, problem.heads_kv, block_n, columns)?,
            map(&args.grad_o, extent.total_o, problem.heads_q, box_q, columns)?,
            map(&args.grad_k, extent.total_kv, problem.heads_kv, store_rows, store_columns)?,
            map(&args.grad_v, extent.total_kv, problem.heads_kv, store_rows, store_columns)?,
        ])
    }
}
