//! The merge of partial results.

use super::plan::{device, dtype};
use super::{Versioned, jfa_device_type, jfa_dtype};
use super::{guard, jfa_const_tensor, jfa_status, jfa_stream, jfa_tensor, null, read_sized};
use crate::combine::{Combine, MAX_PARTS, Part};
use crate::error::Error;

/// What attention to one part of the keys gave. Its layout is frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_part {
    /// Output of jfa_forward(), or of another merge.
    pub o: jfa_const_tensor,
    /// Its LSE, contiguous fp32.
    pub lse: *const f32,
}

/// Arguments of jfa_combine(). Initialise with JFA_COMBINE_ARGS_INIT, then set what differs.
///
/// Shapes: O `[batch * rows, heads, head_dim]`, LSE `[batch, heads, rows]`. That is what jfa_forward() writes for packed
/// Q with `batch` 1 and `rows` total_q, and for broadcast Q with its batch and `rows` max_seqlen_q.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jfa_combine_args {
    /// sizeof(jfa_combine_args).
    pub struct_size: usize,
    /// A jfa_device_type; default JFA_DEVICE_TYPE_CPU.
    pub device_type: i32,
    /// CUDA ordinal, as the driver counts; 0 for the CPU.
    pub device_index: i32,
    /// A jfa_dtype: type of the merged O. Must be set. JFA_DTYPE_FP32 is possible on every device.
    pub dtype: i32,
    /// A jfa_dtype: type of the parts' O, JFA_DTYPE_UNSPECIFIED (the same as `dtype`) or JFA_DTYPE_FP32.
    pub part_dtype: i32,
    /// Query heads, 1 to 4096.
    pub heads: i32,
    /// Elements of one head's row: a multiple of 8 from 8 to 256.
    pub head_dim: i32,
    /// Blocks of rows, up to 2^20; default 1.
    pub batch: i64,
    /// Rows of a block; `batch * rows` is at most 2^40.
    pub rows: i64,
    /// Parts, 1 to 64. More are merged in turns, with an fp32 O between them.
    pub num_parts: i64,
    /// `[num_parts]` parts: the array itself is host memory, free to go when the call returns.
    pub parts: *const jfa_part,
    /// Merged output, written.
    pub o: jfa_tensor,
    /// Merged LSE, contiguous fp32, written. May be NULL if nothing needs it.
    pub lse: *mut f32,
}

// SAFETY: `repr(C)`, `struct_size` first, and only integers and raw pointers.
unsafe impl Versioned for jfa_combine_args {
    const NAME: &'static str = "jfa_combine_args";
    const FIRST_SIZE: usize = size_of::<jfa_combine_args>();
}

const ARGS: jfa_combine_args = jfa_combine_args {
    struct_size: size_of::<jfa_combine_args>(),
    device_type: jfa_device_type::Cpu as i32,
    device_index: 0,
    dtype: jfa_dtype::Unspecified as i32,
    part_dtype: jfa_dtype::Unspecified as i32,
    heads: 0,
    head_dim: 0,
    batch: 1,
    rows: 0,
    num_parts: 0,
    parts: std::ptr::null(),
    o: jfa_tensor { data: std::ptr::null_mut(), row_stride: 0, head_stride: 0 },
    lse: std::ptr::null_mut(),
};

/// Merges what attention to several parts of the keys gave for the same queries, exactly: LSE = log(sum of exp(LSE_i)),
/// O = sum of exp(LSE_i - LSE) O_i, in fp32 and rounded once.
///
/// The keys of a sequence may thus be split over calls, or over devices that exchange O and LSE. A part whose LSE is
/// -inf for a row counts for nothing there, and its O is not used; where all are, O = 0 and LSE = -inf. NaN stays in
/// its row. All rows are read and written, those outside every sequence too.
///
/// The backward needs no counterpart: call jfa_backward() for each part of the keys with the merged O and LSE, dO of
/// the merged O, and the keys and values of that part. Its dK and dV are those of these keys, and the sum of the parts'
/// dQ is dQ; take it in fp32 (`grad_q_dtype`) to round once. Windows and causal masks count from the first or the last
/// key of a part, so that parts of a masked sequence need plans whose masks say the right thing.
///
/// CUDA: enqueues on `stream` and returns; no synchronisation. The first call on a device for these types loads the
/// kernel and must not be captured; later ones may be. Pointers are memory of the device and must stay valid until the
/// stream has passed. The caller's current context is restored. CPU: returns when the work is done. Bitwise equal from
/// run to run. Needs no plan; any number of threads may call. The range of memory from the first to the last element of
/// an output overlaps that of no other tensor; parts may overlap each other.
///
/// Errors: JFA_STATUS_NULL_POINTER, JFA_STATUS_MISALIGNED, JFA_STATUS_INVALID_ARGUMENT (sizes, no part, types, strides,
/// overlapping outputs), JFA_STATUS_STRUCT_SIZE, JFA_STATUS_UNSUPPORTED for a device that this build lacks,
/// JFA_STATUS_NO_DRIVER, JFA_STATUS_NO_DEVICE, JFA_STATUS_CUDA. Nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_combine(args: *const jfa_combine_args, stream: jfa_stream) -> jfa_status {
    guard(|| {
        // SAFETY: `args` points to `struct_size` bytes, by contract.
        let a = unsafe { read_sized(args, ARGS) }?;
        let of_o = dtype("dtype", a.dtype)?
            .ok_or_else(|| Error::invalid("dtype", "JFA_DTYPE_UNSPECIFIED", "set to the type of the merged O"))?;
        if !(1..=MAX_PARTS as i64).contains(&a.num_parts) {
            return Err(Error::invalid("num_parts", a.num_parts, format!("1 to {MAX_PARTS}")));
        }
        if a.parts.is_null() {
            return Err(null("parts"));
        }
        // SAFETY: `parts` has `num_parts` elements, by contract.
        let parts = unsafe { std::slice::from_raw_parts(a.parts, a.num_parts as usize) };
        let call = Combine {
            device: device(a.device_type, a.device_index)?,
            dtype: of_o,
            part_dtype: dtype("part_dtype", a.part_dtype)?.unwrap_or(of_o),
            heads: a.heads,
            head_dim: a.head_dim,
            batch: a.batch,
            rows: a.rows,
            parts: parts.iter().map(|part| Part { o: part.o.into(), lse: part.lse }).collect(),
            o: a.o.into(),
            lse: a.lse,
        };
        // SAFETY: the tensors hold the rows that the sizes name, by contract.
        unsafe { call.run(stream.cast()) }
    })
}
