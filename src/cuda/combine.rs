//! The launch of the merge of partial results.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use super::driver::{Gpu, Kernel, Launch};
use super::params::Tensor;
use crate::combine::{Combine, MAX_PARTS};
use crate::error::{Error, Result, Status};
use crate::problem::Dtype;

const THREADS: u32 = 256;
/// Columns of one row and head that a thread merges at a time.
const COLUMNS: i64 = 8;
/// CTAs for each multiprocessor: as many threads as it holds, so that enough loads are under way.
const CTAS: u32 = 8;

/// One part. Twin of `Part` in `kernels/combine/combine.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Part {
    o: Tensor,
    lse: *const f32,
}

/// Twin of `Params` in `kernels/combine/combine.cu`.
#[repr(C)]
struct Params {
    parts: [Part; MAX_PARTS],
    o: Tensor,
    lse: *mut f32,
    batch: i64,
    rows: i64,
    num_parts: i32,
    heads: i32,
    head_dim: i32,
    reserved: i32,
}

/// Kernels by device and name, loaded once.
static KERNELS: Mutex<Option<HashMap<(u32, &'static str), Kernel>>> = Mutex::new(None);

/// Enqueues a checked call.
///
/// # Safety
/// The pointers are memory of the device that holds the rows of the call; `stream` is a stream of this device.
///
/// # Errors
/// `Unsupported`, `NoDriver`, `NoDevice`, `InvalidArgument` for host memory, `Cuda`.
pub(crate) unsafe fn combine(call: &Combine, ordinal: u32, stream: *mut c_void) -> Result<()> {
    let (gpu, _) = super::open(ordinal)?;
    let _guard = gpu.enter()?;
    for (i, part) in call.parts.iter().enumerate() {
        gpu.check_pointer(&format!("parts[{i}].o"), part.o.data)?;
        gpu.check_pointer(&format!("parts[{i}].lse"), part.lse.cast())?;
    }
    gpu.check_pointer("o", call.o.data)?;
    gpu.check_pointer("lse", call.lse.cast())?;
    let kernel = kernel(&gpu, ordinal, name(call))?;
    let part = |i: usize| {
        // Parts beyond the last one are never looked at.
        let part = call.parts.get(i).unwrap_or(&call.parts[0]);
        Part { o: (&part.o).into(), lse: part.lse }
    };
    let params = Params {
        parts: std::array::from_fn(part),
        o: (&call.o).into(),
        lse: call.lse,
        batch: call.batch,
        rows: call.rows,
        num_parts: call.parts.len() as i32,
        heads: call.heads,
        head_dim: call.head_dim,
        reserved: 0,
    };
    // At most 2^40 rows of 2^12 heads of 32 pieces.
    let pieces = call.total_rows() * i64::from(call.heads) * (i64::from(call.head_dim) / COLUMNS);
    let ctas = (pieces as u64).div_ceil(THREADS.into()).min(u64::from(gpu.multiprocessors * CTAS));
    let launch = Launch { grid: ctas as u32, cluster: 1, dependent: false };
    // SAFETY: the parameters match the kernel's; the caller answers for the stream.
    unsafe { kernel.launch(launch, stream, [(&raw const params).cast()]) }
}

fn name(call: &Combine) -> &'static str {
    match (call.part_dtype, call.dtype) {
        (Dtype::Fp32, Dtype::Bf16) => "jfa_combine_fp32_to_bf16",
        (Dtype::Fp32, Dtype::Fp16) => "jfa_combine_fp32_to_fp16",
        (_, Dtype::Bf16) => "jfa_combine_bf16",
        (_, Dtype::Fp16) => "jfa_combine_fp16",
        (_, Dtype::Fp32) => "jfa_combine_fp32",
    }
}

fn kernel(gpu: &Gpu, ordinal: u32, name: &'static str) -> Result<Kernel> {
    let mut kernels = KERNELS.lock().map_err(|_| Error::new(Status::Internal, "a thread panicked in combine"))?;
    let kernels = kernels.get_or_insert_default();
    if let Some(kernel) = kernels.get(&(ordinal, name)) {
        return Ok(*kernel);
    }
    let kernel = Kernel::load(gpu, "combine", name, THREADS, 0)?;
    kernels.insert((ordinal, name), kernel);
    Ok(kernel)
}
