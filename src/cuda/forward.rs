//! The forward kernel of a plan, and its launch.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::driver::{self, Kernel, Launch};
use super::params::{ForwardParams, ForwardSchedule, Mask};
use super::tensor_map::{self, Columns, Shape, TensorMap};
use super::{Plan, ragged_end};
use crate::error::Result;
use crate::plan::{self, Extent, Scheduler};
use crate::problem::Problem;
use crate::schedule::{self, Deal, HandedOut};
use crate::workspace::Carver;

/// A forward kernel and its tile.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub kernel: Kernel,
    pub name: String,
    /// Rows of a tile: queries, or queries of several heads.
    pub block_m: i64,
    /// Keys of a block.
    pub block_n: i64,
    /// Rows of the boxes in which Q is loaded.
    pub box_q: u32,
    /// Rows of the boxes in which O is stored.
    pub box_o: u32,
    /// Whether the kernel takes parts of the list at run time.
    pub takes_parts: bool,
    /// CTAs that share a multiprocessor.
    pub ctas: u32,
    /// Query heads of a key head whose rows share tiles.
    pub pack: u32,
}

impl Forward {
    /// Packs of query heads, and blocks of their rows in an entry of the list.
    pub(super) fn tile_shape(&self, problem: &Problem) -> (u32, u32) {
        let blocks = match self.pack {
            1 => schedule::blocks_per_entry(problem, self.block_m),
            pack => schedule::blocks(problem.limits.seqlen_q * i64::from(pack), self.block_m) as u32,
        };
        (problem.heads_q as u32 / self.pack, blocks)
    }
}

/// Whether a problem needs a kernel with a mask, which also takes negative scales.
pub(super) fn is_masked(problem: &Problem) -> bool {
    !problem.mask.hides_nothing() || problem.scale < 0.0
}

/// What the names of a problem's forward kernels end with, from the element type on, and that of their unit.
pub(super) fn suffixes(problem: &Problem, dim: u32) -> (String, String) {
    let unit = format!("{}_d{dim}", problem.dtype.name());
    (format!("{unit}{}", if is_masked(problem) { "_mask" } else { "" }), unit)
}

impl Plan {
    /// How CTAs come by their tiles: without more of them than CTAs, each has one at once.
    pub(super) fn forward_scheduler(&self, problem: &Problem) -> Scheduler {
        let Deal { workers, handed_out, .. } = self.deal;
        let most = self.forward_tiles_at_most(problem, problem.limits.total_q, problem.limits.batch);
        match handed_out {
            HandedOut::Parts(_) => Scheduler::ClusterLaunchControl,
            HandedOut::EachTile if most <= workers.into() => Scheduler::Static,
            HandedOut::EachTile if self.forward.takes_parts => Scheduler::ClusterLaunchControl,
            HandedOut::EachTile => Scheduler::Atomic,
            HandedOut::Nothing => Scheduler::Static,
        }
    }

    /// Counts or carves the forward's workspace: the counter that hands out tiles, if one does.
    pub fn carve_forward(&self, problem: &Problem, carver: &mut Carver) -> *mut u32 {
        match self.forward_scheduler(problem) {
            Scheduler::Atomic => carver.take(1),
            Scheduler::Static | Scheduler::ClusterLaunchControl => null_mut(),
        }
    }

    fn forward_tiles_at_most(&self, problem: &Problem, total_q: i64, batch: i64) -> i64 {
        let (heads, blocks) = self.forward.tile_shape(problem);
        let entries =
            super::forward_entries_at_most(problem, total_q, batch, self.forward.block_m, self.blocks_per_entry);
        entries * i64::from(heads * blocks)
    }

    /// CTAs of a launch for at most `tiles` tiles.
    fn forward_grid(&self, tiles: i64) -> u32 {
        let Deal { workers, handed_out, .. } = self.deal;
        match handed_out {
            HandedOut::Parts(parts) => workers + parts,
            HandedOut::EachTile if self.forward.takes_parts && tiles > workers.into() => {
                (i64::from(workers) + tiles).min(i32::MAX.into()) as u32
            }
            HandedOut::Nothing | HandedOut::EachTile => workers,
        }
    }

    /// Enqueues O and LSE.
    ///
    /// # Safety
    /// The tensors and the carver's memory are device memory that holds the rows of the batch; `stream` is a stream of
    /// this device.
    ///
    /// # Errors
    /// `InvalidArgument` for host memory, `Cuda`.
    pub unsafe fn forward(
        &self,
        problem: &Problem,
        extent: &Extent,
        args: &plan::Forward,
        carver: &mut Carver,
        stream: *mut c_void,
    ) -> Result<()> {
        if extent.total_o == 0 {
            return Ok(());
        }
        let _guard = self.gpu.enter()?;
        for (name, pointer) in [("q", args.q.data), ("k", args.k.data), ("v", args.v.data), ("o", args.o.data)] {
            self.gpu.check_pointer(name, pointer)?;
        }
        self.gpu.check_pointer("lse", args.lse.cast())?;
        let places = self.carve_forward(problem, carver);
        self.gpu.check_pointer("workspace", places.cast())?;
        let ragged_end = ragged_end(problem);
        let shape = |rows, heads| Shape { rows, heads, head_dim: problem.head_dim, ragged_end };
        let map = |tensor, rows, heads, box_rows| {
            TensorMap::jagged(problem.dtype, tensor, &shape(rows, heads), box_rows, Columns::All)
        };
        let block_n = self.forward.block_n as u32;
        // Without rows of K there is no tile, and any valid map will do.
        let (k, v) = if extent.total_kv == 0 { (&args.o, &args.o) } else { (&args.k, &args.v) };
        // Boxes of Q and O hold queries, or queries and the heads that share a tile with them.
        let map_q = |tensor, rows, box_rows: u32| match self.forward.pack {
            1 => map(tensor, rows, problem.heads_q, box_rows),
            pack => TensorMap::packed(problem.dtype, tensor, &shape(rows, problem.heads_q), box_rows / pack, pack),
        };
        let (heads, blocks_per_entry) = self.forward.tile_shape(problem);
        let maps = [
            map_q(&args.q, extent.total_q, self.forward.box_q)?,
            map(k, extent.total_kv, problem.heads_kv, block_n)?,
            map(v, extent.total_kv, problem.heads_kv, block_n)?,
            map_q(&args.o, extent.total_o, self.forward.box_o)?,
        ];
        let params = ForwardParams {
            schedule: ForwardSchedule { heads, blocks_per_entry, ..self.forward_schedule(problem) },
            mask: Mask::new(problem),
            scale: problem.scale,
            scale_log2: problem.scale.abs() * std::f32::consts::LOG2_E,
            group: problem.group(),
            head_dim: problem.head_dim,
            panel_boxes: tensor_map::panel_boxes(problem.head_dim),
            broadcast_q: problem.broadcast_q.into(),
            lse_begin_scale: if problem.broadcast_q { problem.heads_q } else { 1 },
            ragged_end: ragged_end as i32,
            pack_shift: self.forward.pack.trailing_zeros() as i32,
            lse_head_stride: if problem.broadcast_q { problem.limits.seqlen_q } else { extent.total_o },
            o_row_stride: args.o.row_stride,
            o_head_stride: args.o.head_stride,
            o: args.o.data,
            lse: args.lse,
            places,
        };
        // SAFETY: the parameters match the kernel's; the caller answers for the stream.
        unsafe {
            if !places.is_null() {
                driver::zero(places, 1, stream)?;
            }
            let tiles = self.forward_tiles_at_most(problem, extent.total_q, extent.batch);
            let launch = Launch { grid: self.forward_grid(tiles), cluster: 1, dependent: places.is_null() };
            self.forward.kernel.launch(launch, stream, [(&raw const maps).cast(), (&raw const params).cast()])
        }
    }

    pub(super) fn forward_schedule(&self, problem: &Problem) -> ForwardSchedule {
        ForwardSchedule {
            state: self.state.address,
            sequences: self.sequences.address,
            entries: self.forward_entries.address,
            heads: problem.heads_q as u32,
            blocks_per_entry: self.blocks_per_entry,
            workers: self.deal.workers,
            group: self.deal.group,
            stride: self.deal.stride,
            block_m: self.forward.block_m as u32,
        }
    }
}
