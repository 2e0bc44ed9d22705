//! What the kernels are given. Mirrors `kernels/attention/params.cuh`.

use std::ffi::c_void;

use crate::problem::{Alignment, Problem};

/// Address in device memory.
pub(super) type DevicePtr = u64;

/// Width of an unbounded side of a window, and the bound of every length.
pub(super) const UNBOUNDED: i32 = 1 << 30;

/// Where one sequence of a batch lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Sequence {
    /// First row of Q.
    pub begin_q: i64,
    /// First row of O.
    pub begin_o: i64,
    /// First row of K and V.
    pub begin_kv: i64,
    /// Queries.
    pub len_q: i32,
    /// Keys.
    pub len_kv: i32,
}

/// What the planner found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PlanState {
    /// Blocks of queries that see keys.
    pub forward_entries: u32,
    /// Blocks of queries that see none.
    pub keyless_entries: u32,
    /// Blocks of keys that are seen, with sentinels.
    pub backward_entries: u32,
    /// Blocks of keys that no query sees.
    pub unseen_entries: u32,
    /// Kind of the first error in the offsets, 0 for none.
    pub error: u32,
    /// 0.
    pub reserved: u32,
    /// Its index.
    pub error_index: i64,
    /// The value there.
    pub error_value: i64,
    /// What it breaks.
    pub error_bound: i64,
}

/// A sliding window.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Mask {
    left: i32,
    right: i32,
    bottom_right: i32,
}

impl Mask {
    pub(super) fn new(problem: &Problem) -> Self {
        let side = |width: Option<i64>| width.map_or(UNBOUNDED, |width| width.min((UNBOUNDED - 1).into()) as i32);
        Mask {
            left: side(problem.mask.left),
            right: side(problem.mask.right),
            bottom_right: (problem.mask.alignment == Alignment::BottomRight).into(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PlanParams {
    pub q_offsets: *const c_void,
    pub kv_offsets: *const c_void,
    pub kv_lengths: *const c_void,
    pub wide: i32,
    pub batch: i32,
    pub total_q: i64,
    pub total_kv: i64,
    pub max_seqlen_q: i32,
    pub max_seqlen_kv: i32,
    pub mask: Mask,
    pub block_m: i32,
    pub blocks_per_entry: i32,
    pub class_keys: i32,
    pub block_n: i32,
    pub cluster: i32,
    pub state: DevicePtr,
    pub sequences: DevicePtr,
    pub forward: DevicePtr,
    pub backward: DevicePtr,
    pub unseen: DevicePtr,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ForwardSchedule {
    pub state: DevicePtr,
    pub sequences: DevicePtr,
    pub entries: DevicePtr,
    pub heads: u32,
    pub blocks_per_entry: u32,
    pub workers: u32,
    pub group: u32,
    pub stride: u32,
    pub block_m: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ForwardParams {
    pub schedule: ForwardSchedule,
    pub mask: Mask,
    pub scale: f32,
    pub scale_log2: f32,
    pub group: i32,
    pub head_dim: i32,
    pub panel_boxes: i32,
    pub broadcast_q: i32,
    pub lse_begin_scale: i32,
    pub ragged_end: i32,
    pub pack_shift: i32,
    pub lse_head_stride: i64,
    pub o_row_stride: i64,
    pub o_head_stride: i64,
    pub o: *mut c_void,
    pub lse: *mut f32,
    pub places: *mut u32,
}

/// Rows x heads x head_dim elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Tensor {
    pub data: *mut c_void,
    pub row_stride: i64,
    pub head_stride: i64,
}

impl From<&crate::plan::Tensor> for Tensor {
    fn from(t: &crate::plan::Tensor) -> Self {
        Tensor { data: t.data, row_stride: t.row_stride, head_stride: t.head_stride }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct BackwardSchedule {
    pub state: DevicePtr,
    pub sequences: DevicePtr,
    pub entries: DevicePtr,
    pub unseen: DevicePtr,
    pub heads: u32,
    pub lanes: u32,
    pub chain: u32,
    pub launch_control: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct BackwardParams {
    pub forward: ForwardSchedule,
    pub schedule: BackwardSchedule,
    pub mask: Mask,
    pub scale: f32,
    pub scale_log2: f32,
    pub group: i32,
    pub head_dim: i32,
    pub panel_boxes: i32,
    pub broadcast_q: i32,
    pub lse_begin_scale: i32,
    pub ragged_end: i32,
    pub ordered: i32,
    pub accumulate: i32,
    pub grad_q_fp32: i32,
    pub stat_blocks: i32,
    pub grad_q_blocks: i32,
    pub parts: i32,
    pub seqlen_q: i32,
    pub batch: u32,
    pub tile_keys: i32,
    pub lse_head_stride: i64,
    pub zero_floats: i64,
    pub lse: *const f32,
    pub stats: *mut f32,
    pub sums: *mut f32,
    pub turns: *mut u32,
    pub zeros: *mut f32,
    pub places: *mut u32,
    pub progress: *mut u32,
    pub o: Tensor,
    pub grad_o: Tensor,
    pub grad_q: Tensor,
    pub grad_k: Tensor,
    pub grad_v: Tensor,
}
