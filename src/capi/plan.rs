//! The life of a plan.

use std::ffi::c_char;

use super::{guard, jfa_batch, jfa_plan, jfa_plan_desc, jfa_plan_details, jfa_status, jfa_stream};
use super::{null, plan_ref, read_sized, struct_size};
use crate::error::{Error, Result};
use crate::plan::{Batch, Plan, Scheduler};
use crate::problem::{Alignment, Device, Dtype, IndexType, Limits, Mask, Problem};

/// Makes a plan for one operator on one device and stores it in `*plan`, which is set to NULL on failure.
///
/// Loads kernels and allocates what every later call needs; not allowed while a stream of this thread is capturing.
/// The plan belongs to the caller, who ends it with jfa_plan_destroy(). Plans may be made on any number of threads.
///
/// Errors: JFA_STATUS_INVALID_ARGUMENT for a value outside the range that its field states, JFA_STATUS_UNSUPPORTED
/// for a device or type that this build lacks, JFA_STATUS_NO_DRIVER, JFA_STATUS_NO_DEVICE, JFA_STATUS_OUT_OF_MEMORY,
/// JFA_STATUS_STRUCT_SIZE, JFA_STATUS_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_create(desc: *const jfa_plan_desc, plan: *mut *mut jfa_plan) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or writable, by contract.
        let out = unsafe { plan.as_mut() }.ok_or_else(|| null("plan"))?;
        *out = std::ptr::null_mut();
        // SAFETY: `desc` points to `struct_size` bytes, by contract.
        let desc = unsafe { read_sized(desc, DESC) }?;
        let workers = u32::try_from(desc.max_workers)
            .map_err(|_| Error::invalid("max_workers", desc.max_workers, "0 (all) or positive"))?;
        *out = Box::into_raw(Box::new(Plan::new(problem(&desc)?, workers)?)).cast();
        Ok(())
    })
}

/// Takes the offsets of one step and lists its tiles, forward and backward, for all layers that share the plan.
///
/// CUDA: enqueues the planner on `stream`; no host synchronisation, may be captured together with the calls that use
/// it, and a replay reads the offsets anew from the same buffers. Offsets that break a rule leave empty tile lists:
/// the calls that follow then read and write nothing, and jfa_plan_check() tells. CPU: the offsets are copied, and a
/// broken rule fails this call. A plan whose update failed refuses to run until one succeeds.
///
/// No other call may use the plan meanwhile.
///
/// Errors: JFA_STATUS_INVALID_ARGUMENT for sizes beyond the plan's maxima, JFA_STATUS_NULL_POINTER,
/// JFA_STATUS_INVALID_OFFSETS (CPU; names the first bad index), JFA_STATUS_STRUCT_SIZE, JFA_STATUS_CUDA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_update(
    plan: *mut jfa_plan,
    batch: *const jfa_batch,
    stream: jfa_stream,
) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or a live handle that no other call uses, by contract.
        let plan = unsafe { plan.cast::<Plan>().as_mut() }.ok_or_else(|| null("plan"))?;
        // SAFETY: `batch` points to `struct_size` bytes, by contract.
        let b = unsafe { read_sized(batch, BATCH) }?;
        let limits = plan.problem().limits;
        let batch = Batch {
            batch: b.batch,
            total_q: if b.total_q == -1 { limits.total_q } else { b.total_q },
            total_kv: if b.total_kv == -1 { limits.total_kv } else { b.total_kv },
            q_offsets: b.q_offsets,
            kv_offsets: b.kv_offsets,
            kv_lengths: b.kv_lengths,
        };
        // SAFETY: the offsets are readable on the plan's device, by contract.
        unsafe { plan.update(&batch, stream.cast()) }
    })
}

/// Writes what was decided for the plan's device and its current batch to `*details`.
///
/// CUDA: synchronises with the last jfa_plan_update(); not allowed under capture.
///
/// Errors: JFA_STATUS_NOT_READY without a batch, JFA_STATUS_INVALID_OFFSETS, JFA_STATUS_STRUCT_SIZE,
/// JFA_STATUS_NULL_POINTER, JFA_STATUS_CUDA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_info(plan: *const jfa_plan, details: *mut jfa_plan_details) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or a live handle, by contract.
        let info = unsafe { plan_ref(plan) }?.info()?;
        // SAFETY: `details` is null or points to `struct_size` bytes, by contract.
        let size = unsafe { struct_size(details) }?;
        let known = size.min(size_of::<jfa_plan_details>());
        let out = jfa_plan_details {
            struct_size: size,
            arch: chars(&info.arch),
            forward_kernel: chars(&info.forward.kernel),
            backward_kernel: chars(&info.backward.kernel),
            forward_workers: info.forward.workers,
            backward_workers: info.backward.workers,
            forward_cluster: info.forward.cluster,
            backward_cluster: info.backward.cluster,
            forward_scheduler: scheduler(info.forward.scheduler),
            backward_scheduler: scheduler(info.backward.scheduler),
            forward_block_m: info.forward.block_m,
            forward_block_n: info.forward.block_n,
            backward_block_m: info.backward.block_m,
            backward_block_n: info.backward.block_n,
            forward_tiles: info.forward.tiles,
            backward_tiles: info.backward.tiles,
            forward_imbalance: info.forward.imbalance,
            backward_imbalance: info.backward.imbalance,
        };
        // SAFETY: `known` bytes are writable, as checked.
        unsafe { std::ptr::copy_nonoverlapping((&raw const out).cast::<u8>(), details.cast::<u8>(), known) };
        Ok(())
    })
}

/// Tells whether the current batch is valid.
///
/// CUDA: synchronises with the last jfa_plan_update(); not allowed under capture.
///
/// Errors: JFA_STATUS_INVALID_OFFSETS with the first bad index in jfa_last_error(), JFA_STATUS_NOT_READY,
/// JFA_STATUS_NULL_POINTER, JFA_STATUS_CUDA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_check(plan: *const jfa_plan) -> jfa_status {
    // SAFETY: `plan` is null or a live handle, by contract.
    guard(|| unsafe { plan_ref(plan) }?.check())
}

/// Stores the bytes of workspace that jfa_forward() and jfa_backward() need for any batch within the plan's maxima.
///
/// Either pointer may be NULL. Depends on the plan alone, so that one buffer serves every step.
///
/// Errors: JFA_STATUS_NULL_POINTER if `plan` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_workspace_size(
    plan: *const jfa_plan,
    forward: *mut usize,
    backward: *mut usize,
) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or a live handle, by contract.
        let sizes = unsafe { plan_ref(plan) }?.workspace_size();
        for (out, size) in [(forward, sizes.0), (backward, sizes.1)] {
            // SAFETY: null or writable, by contract.
            if let Some(out) = unsafe { out.as_mut() } {
                *out = size;
            }
        }
        Ok(())
    })
}

/// Ends a plan; NULL is ignored.
///
/// Work that is already enqueued stays valid. No other call may use the plan meanwhile or afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_plan_destroy(plan: *mut jfa_plan) {
    guard(|| {
        if !plan.is_null() {
            // SAFETY: a live handle, by contract, made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(plan.cast::<Plan>()) });
        }
        Ok(())
    });
}

const DESC: jfa_plan_desc = jfa_plan_desc {
    struct_size: size_of::<jfa_plan_desc>(),
    device_type: 0,
    device_index: 0,
    dtype: 0,
    grad_q_dtype: 0,
    index_type: 0,
    heads_q: 0,
    heads_kv: 0,
    head_dim: 0,
    window_left: -1,
    window_right: -1,
    alignment: 0,
    scale: 0.0,
    flags: 0,
    max_workers: 0,
    max_batch: 0,
    max_total_q: 0,
    max_total_kv: 0,
    max_seqlen_q: 0,
    max_seqlen_kv: 0,
};

const BATCH: jfa_batch = jfa_batch {
    struct_size: size_of::<jfa_batch>(),
    batch: 0,
    total_q: -1,
    total_kv: -1,
    q_offsets: std::ptr::null(),
    kv_offsets: std::ptr::null(),
    kv_lengths: std::ptr::null(),
};

fn problem(d: &jfa_plan_desc) -> Result<Problem> {
    let device = device(d.device_type, d.device_index)?;
    let dtype = dtype("dtype", d.dtype)?
        .ok_or_else(|| Error::invalid("dtype", "JFA_DTYPE_UNSPECIFIED", "set to the type of Q, K and V"))?;
    if device != Device::Cpu && dtype == Dtype::Fp32 {
        return Err(Error::new(
            crate::error::Status::Unsupported,
            "dtype is JFA_DTYPE_FP32, which only JFA_DEVICE_TYPE_CPU offers",
        ));
    }
    let unknown_flags = d.flags & !(super::JFA_BROADCAST_Q | super::JFA_DETERMINISTIC);
    if unknown_flags != 0 {
        return Err(Error::invalid(
            "flags",
            format!("{:#x}", d.flags),
            "made of JFA_BROADCAST_Q and JFA_DETERMINISTIC",
        ));
    }
    let broadcast_q = d.flags & super::JFA_BROADCAST_Q != 0;
    Ok(Problem {
        device,
        dtype,
        grad_q_dtype: self::dtype("grad_q_dtype", d.grad_q_dtype)?.unwrap_or(dtype),
        index_type: match d.index_type {
            0 => IndexType::Int32,
            1 => IndexType::Int64,
            other => return Err(Error::invalid("index_type", other, "a jfa_index_type (0 or 1)")),
        },
        heads_q: d.heads_q,
        heads_kv: d.heads_kv,
        head_dim: d.head_dim,
        scale: if d.scale == 0.0 { (d.head_dim.max(1) as f32).sqrt().recip() } else { d.scale },
        mask: Mask {
            left: window("window_left", d.window_left)?,
            right: window("window_right", d.window_right)?,
            alignment: match d.alignment {
                0 => Alignment::TopLeft,
                1 => Alignment::BottomRight,
                other => return Err(Error::invalid("alignment", other, "a jfa_alignment (0 or 1)")),
            },
        },
        broadcast_q,
        deterministic: d.flags & super::JFA_DETERMINISTIC != 0,
        limits: Limits {
            batch: d.max_batch,
            total_q: if broadcast_q { 0 } else { d.max_total_q },
            total_kv: d.max_total_kv,
            seqlen_q: d.max_seqlen_q,
            seqlen_kv: d.max_seqlen_kv,
        },
    })
}

pub(super) fn device(kind: i32, index: i32) -> Result<Device> {
    match (kind, u32::try_from(index)) {
        (0, Ok(0)) => Ok(Device::Cpu),
        (0, _) => Err(Error::invalid("device_index", index, "0 for JFA_DEVICE_TYPE_CPU")),
        (1, Ok(index)) => Ok(Device::Cuda(index)),
        (1, _) => Err(Error::invalid("device_index", index, "0 or more")),
        (other, _) => Err(Error::invalid("device_type", other, "a jfa_device_type (0 or 1)")),
    }
}

pub(super) fn dtype(name: &str, value: i32) -> Result<Option<Dtype>> {
    match value {
        0 => Ok(None),
        1 => Ok(Some(Dtype::Bf16)),
        2 => Ok(Some(Dtype::Fp16)),
        3 => Ok(Some(Dtype::Fp32)),
        other => Err(Error::invalid(name, other, "a jfa_dtype (0 to 3)")),
    }
}

fn window(name: &str, value: i32) -> Result<Option<i64>> {
    match value {
        -1 => Ok(None),
        0.. => Ok(Some(value.into())),
        _ => Err(Error::invalid(name, value, "-1 (unbounded) or more")),
    }
}

fn scheduler(scheduler: Scheduler) -> i32 {
    let value = match scheduler {
        Scheduler::Static => super::jfa_scheduler::Static,
        Scheduler::Atomic => super::jfa_scheduler::Atomic,
        Scheduler::ClusterLaunchControl => super::jfa_scheduler::ClusterLaunchControl,
    };
    value as i32
}

/// The text as a C string, cut to fit.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}
