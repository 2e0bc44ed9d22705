//! The structs and enumerations of the API.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

use super::Versioned;

// Not `repr(C)`: cbindgen then declares an incomplete struct, where C99 and C++ forbid an array of no elements.
/// A plan: one attention operator, made ready for one device. Opaque.
pub struct jfa_plan {
    _private: [u8; 0],
}

/// The tag of CUDA's stream type, so that `cudaStream_t` and `CUstream` are `jfa_stream` without a cast.
pub struct CUstream_st {
    _private: [u8; 0],
}

/// A CUDA stream; NULL is the legacy default stream. Ignored by the CPU device.
pub type jfa_stream = *mut CUstream_st;

/// Where a plan runs: `jfa_plan_desc.device_type`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_device_type {
    /// The threads of this process; pointers are host memory, calls return when the work is done.
    Cpu = 0,
    /// A CUDA device; pointers are device memory, calls only enqueue.
    Cuda = 1,
}

/// Element types: `jfa_plan_desc.dtype` and `grad_q_dtype`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_dtype {
    /// Not set. For `grad_q_dtype`: the same as `dtype`.
    Unspecified = 0,
    /// bfloat16.
    Bf16 = 1,
    /// IEEE half precision.
    Fp16 = 2,
    /// IEEE single precision; as `dtype` on the CPU device only.
    Fp32 = 3,
}

/// Types of offsets and lengths: `jfa_plan_desc.index_type`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_index_type {
    /// `int32_t`.
    Int32 = 0,
    /// `int64_t`.
    Int64 = 1,
}

/// Where the diagonal of a window starts: `jfa_plan_desc.alignment`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_alignment {
    /// Query 0 lies on key 0: query i sees keys i - window_left .. i + window_right.
    TopLeft = 0,
    /// The last query lies on the last key, per sequence: the diagonal is shifted by len_kv - len_q.
    BottomRight = 1,
}

/// One dense Q is shared by all sequences: bit of `jfa_plan_desc.flags`.
pub const JFA_BROADCAST_Q: u32 = 1;
/// The backward gives bitwise equal results from run to run: bit of `jfa_plan_desc.flags`.
pub const JFA_DETERMINISTIC: u32 = 2;

/// dQ is added to what `grad_q` holds: bit of `jfa_backward_args.accumulate`.
pub const JFA_ACCUMULATE_GRAD_Q: u32 = 1;
/// dK is added to what `grad_k` holds: bit of `jfa_backward_args.accumulate`.
pub const JFA_ACCUMULATE_GRAD_K: u32 = 2;
/// dV is added to what `grad_v` holds: bit of `jfa_backward_args.accumulate`.
pub const JFA_ACCUMULATE_GRAD_V: u32 = 4;

/// How tiles are handed to workers: `jfa_plan_details.forward_scheduler` and `backward_scheduler`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_scheduler {
    /// Every worker has a fixed list.
    Static = 0,
    /// Workers take the next tile of the list from a counter (backward, on Blackwell if deterministic; forward with a
    /// mask, but not on Blackwell).
    Atomic = 1,
    /// Cluster launch control hands out the list; in the forward without a mask, what is left of it after a fixed list
    /// of the longest tiles (Blackwell).
    ClusterLaunchControl = 2,
}

/// What a plan is made for. Initialise with JFA_PLAN_DESC_INIT, then set what differs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_plan_desc {
    /// sizeof(jfa_plan_desc).
    pub struct_size: usize,
    /// A jfa_device_type; default JFA_DEVICE_TYPE_CPU.
    pub device_type: i32,
    /// CUDA ordinal, as the driver counts; 0 for the CPU.
    pub device_index: i32,
    /// A jfa_dtype: type of Q, K, V, O, dO, dK and dV. Must be set.
    pub dtype: i32,
    /// A jfa_dtype: type of dQ, JFA_DTYPE_UNSPECIFIED (the same as `dtype`) or JFA_DTYPE_FP32.
    pub grad_q_dtype: i32,
    /// A jfa_index_type: type of offsets and lengths; default JFA_INDEX_TYPE_INT32.
    pub index_type: i32,
    /// Query heads, 1 to 4096; a multiple of `heads_kv`. Query head h uses key head h / (heads_q / heads_kv).
    pub heads_q: i32,
    /// Key and value heads.
    pub heads_kv: i32,
    /// Elements of one head's row, the same for Q, K and V: a multiple of 8 from 8 to 256.
    pub head_dim: i32,
    /// Keys seen to the left of the diagonal, inclusive; -1 (default) for all.
    pub window_left: i32,
    /// Keys seen to the right of the diagonal, inclusive; -1 (default) for all, 0 for causal.
    pub window_right: i32,
    /// A jfa_alignment of the diagonal; default JFA_ALIGNMENT_TOP_LEFT.
    pub alignment: i32,
    /// Factor of the scores; 0 (default) means 1 / sqrt(head_dim).
    pub scale: f32,
    /// JFA_BROADCAST_Q, JFA_DETERMINISTIC, or both.
    pub flags: u32,
    /// Threads (CPU) or multiprocessors (CUDA) to use at most; 0 (default) for all.
    pub max_workers: i32,
    /// Largest number of sequences of a batch, up to 2^20.
    pub max_batch: i64,
    /// Largest number of rows of packed Q; ignored with JFA_BROADCAST_Q.
    pub max_total_q: i64,
    /// Largest number of rows of K and V.
    pub max_total_kv: i64,
    /// Longest query sequence; with JFA_BROADCAST_Q the exact number of rows of Q.
    pub max_seqlen_q: i64,
    /// Longest key sequence.
    pub max_seqlen_kv: i64,
}

/// The sequences of one step. Initialise with JFA_BATCH_INIT, then set what differs.
///
/// Offsets and lengths have the plan's `index_type` and lie in device memory for a CUDA plan, in host memory for a CPU
/// plan. Sequence b has the rows `offsets[b] .. offsets[b + 1]`; offsets never decrease, and `offsets[0]` may be above
/// 0. Rows outside every sequence are neither read nor written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_batch {
    /// sizeof(jfa_batch).
    pub struct_size: usize,
    /// Sequences, 0 to the plan's `max_batch`.
    pub batch: i64,
    /// Rows of packed Q (and of O, and of each head's LSE); -1 (default) for the plan's `max_total_q`. Ignored with
    /// JFA_BROADCAST_Q.
    pub total_q: i64,
    /// Rows of K and V; -1 (default) for the plan's `max_total_kv`. No offset may pass it.
    pub total_kv: i64,
    /// `[batch + 1]` offsets of packed Q; NULL with JFA_BROADCAST_Q.
    pub q_offsets: *const c_void,
    /// `[batch + 1]` offsets of K and V.
    pub kv_offsets: *const c_void,
    /// `[batch]` keys used of each slot, or NULL for whole slots. The rest of a slot is neither read nor written.
    pub kv_lengths: *const c_void,
}

/// A tensor that is read: `[rows, heads, head_dim]` with a contiguous last dimension. Its layout is frozen.
///
/// `data` and both strides are multiples of 16 bytes. The stride of a dimension of size 1 is ignored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_const_tensor {
    /// First element; may be NULL if there are no rows.
    pub data: *const c_void,
    /// Elements from one row to the next; 0 for heads * head_dim.
    pub row_stride: i64,
    /// Elements from one head to the next; 0 for head_dim.
    pub head_stride: i64,
}

/// A tensor that is written: as jfa_const_tensor. It shares no byte with another tensor of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_tensor {
    /// First element; may be NULL if there are no rows.
    pub data: *mut c_void,
    /// Elements from one row to the next; 0 for heads * head_dim.
    pub row_stride: i64,
    /// Elements from one head to the next; 0 for head_dim.
    pub head_stride: i64,
}

/// Arguments of jfa_forward(). Initialise with JFA_FORWARD_ARGS_INIT, then set what differs.
///
/// Shapes, with total_q and total_kv of the batch: packed Q has Q and O `[total_q, heads_q, head_dim]` and LSE
/// `[heads_q, total_q]`; broadcast Q has Q `[max_seqlen_q, heads_q, head_dim]`, O `[batch * max_seqlen_q, heads_q,
/// head_dim]` and LSE `[batch, heads_q, max_seqlen_q]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_forward_args {
    /// sizeof(jfa_forward_args).
    pub struct_size: usize,
    /// Queries.
    pub q: jfa_const_tensor,
    /// Keys, `[total_kv, heads_kv, head_dim]`.
    pub k: jfa_const_tensor,
    /// Values, `[total_kv, heads_kv, head_dim]`.
    pub v: jfa_const_tensor,
    /// Output, written: 0 for queries that see no key.
    pub o: jfa_tensor,
    /// Natural logarithm of the sum of exp(scale * score), contiguous fp32, written: -inf for queries that see no key.
    /// May be NULL if no backward follows.
    pub lse: *mut f32,
    /// Scratch memory of the plan's device, aligned to 256 bytes; one per call in flight. May be NULL if its size is 0.
    pub workspace: *mut c_void,
    /// Bytes of `workspace`: at least what jfa_plan_workspace_size() says.
    pub workspace_size: usize,
}

/// Arguments of jfa_backward(). Initialise with JFA_BACKWARD_ARGS_INIT, then set what differs.
///
/// Q, K, V, O and LSE are those of the forward, with its shapes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_backward_args {
    /// sizeof(jfa_backward_args).
    pub struct_size: usize,
    /// Queries.
    pub q: jfa_const_tensor,
    /// Keys.
    pub k: jfa_const_tensor,
    /// Values.
    pub v: jfa_const_tensor,
    /// Output of the forward.
    pub o: jfa_const_tensor,
    /// Gradient of the output, of the shape of O.
    pub grad_o: jfa_const_tensor,
    /// LSE of the forward.
    pub lse: *const f32,
    /// Gradient of the queries, of the shape of Q and of type `grad_q_dtype`, written; with JFA_BROADCAST_Q the sum
    /// over the batch. Accumulated in fp32 and rounded once.
    pub grad_q: jfa_tensor,
    /// Gradient of the keys, of the shape of K, written: 0 for keys that no query sees.
    pub grad_k: jfa_tensor,
    /// Gradient of the values, of the shape of V, written: 0 for keys that no query sees.
    pub grad_v: jfa_tensor,
    /// Scratch memory of the plan's device, aligned to 256 bytes; one per call in flight. May be NULL if its size is 0.
    pub workspace: *mut c_void,
    /// Bytes of `workspace`: at least what jfa_plan_workspace_size() says.
    pub workspace_size: usize,
    /// JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_V, any of them or none (default): gradients
    /// that are added to what their tensors hold, where the others overwrite it. Rows of a sequence to which nothing
    /// contributes keep their value. dQ is added in fp32 and the sum rounded once. So are dK and dV on the CPU device;
    /// on a CUDA device they are rounded to `dtype`, added, and the sum is rounded again.
    pub accumulate: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// What a plan decided, written by jfa_plan_info(). Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_plan_details {
    /// sizeof(jfa_plan_details).
    pub struct_size: usize,
    /// Architecture of the kernels: "cpu/avx2", "sm_90a" and the like.
    pub arch: [c_char; 32],
    /// Name of the forward kernel.
    pub forward_kernel: [c_char; 64],
    /// Name of the backward kernel.
    pub backward_kernel: [c_char; 64],
    /// Workers of the forward: CTAs that run at a time, or threads.
    pub forward_workers: u32,
    /// Workers of the backward.
    pub backward_workers: u32,
    /// CTAs of a cluster in the forward.
    pub forward_cluster: u32,
    /// CTAs of a cluster in the backward.
    pub backward_cluster: u32,
    /// A jfa_scheduler.
    pub forward_scheduler: i32,
    /// A jfa_scheduler.
    pub backward_scheduler: i32,
    /// Queries of a forward tile.
    pub forward_block_m: i64,
    /// Keys of one step of the forward.
    pub forward_block_n: i64,
    /// Queries of one step of the backward.
    pub backward_block_m: i64,
    /// Keys of a backward tile.
    pub backward_block_n: i64,
    /// Forward tiles of the current batch.
    pub forward_tiles: u64,
    /// Backward tiles of the current batch.
    pub backward_tiles: u64,
    /// Work of the busiest forward worker over the mean; 1 when there is no work.
    pub forward_imbalance: f64,
    /// Work of the busiest backward worker over the mean; 1 when there is no work.
    pub backward_imbalance: f64,
}

macro_rules! versioned {
    ($($name:ident: $first_size:expr;)*) => {$(
        // SAFETY: `repr(C)`, `struct_size` first, and only integers, floats and raw pointers.
        unsafe impl Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST_SIZE: usize = $first_size;
        }
    )*};
}

// Fields that were appended later do not count.
versioned! {
    jfa_plan_desc: size_of::<jfa_plan_desc>();
    jfa_batch: size_of::<jfa_batch>();
    jfa_forward_args: size_of::<jfa_forward_args>();
    jfa_backward_args: offset_of!(jfa_backward_args, accumulate);
    jfa_plan_details: size_of::<jfa_plan_details>();
}
