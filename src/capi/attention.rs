//! Forward and backward.

use super::{JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_V};
use super::{
    guard, jfa_backward_args, jfa_const_tensor, jfa_forward_args, jfa_plan, jfa_status, jfa_stream, jfa_tensor,
};
use super::{plan_ref, read_sized, workspace};
use crate::error::{Error, Result};
use crate::plan::{Accumulate, Backward, Forward, Tensor};

/// Computes O = softmax(scale * Q K^T + mask) V and its LSE for the plan's current batch.
///
/// CUDA: enqueues on `stream` and returns; no allocation, no synchronisation, may be captured. Pointers are memory of
/// the plan's device and must stay valid until the stream has passed. The caller's current context is restored. CPU:
/// returns when the work is done. Bitwise equal from run to run. Any number of threads may call with the same plan,
/// each with its own outputs and workspace.
///
/// Errors: JFA_STATUS_NOT_READY without a valid batch, JFA_STATUS_NULL_POINTER, JFA_STATUS_MISALIGNED,
/// JFA_STATUS_INVALID_ARGUMENT (strides, overlapping outputs), JFA_STATUS_WORKSPACE_TOO_SMALL,
/// JFA_STATUS_STRUCT_SIZE, JFA_STATUS_CUDA. Nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_forward(
    plan: *const jfa_plan,
    args: *const jfa_forward_args,
    stream: jfa_stream,
) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or a live handle, by contract.
        let plan = unsafe { plan_ref(plan) }?;
        // SAFETY: `args` points to `struct_size` bytes, by contract.
        let a = unsafe { read_sized(args, std::mem::zeroed()) }?;
        let args = Forward { q: a.q.into(), k: a.k.into(), v: a.v.into(), o: a.o.into(), lse: a.lse };
        // SAFETY: the tensors hold the rows that the batch names, by contract.
        unsafe { plan.forward(&args, workspace(a.workspace, a.workspace_size), stream.cast()) }
    })
}

/// Computes dQ, dK and dV for the plan's current batch from dO and the results of jfa_forward().
///
/// Streams, threads, capture and errors as for jfa_forward(); JFA_STATUS_INVALID_ARGUMENT also for unknown bits of
/// `accumulate`. The CPU device is always deterministic; a CUDA plan is with JFA_DETERMINISTIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jfa_backward(
    plan: *const jfa_plan,
    args: *const jfa_backward_args,
    stream: jfa_stream,
) -> jfa_status {
    guard(|| {
        // SAFETY: `plan` is null or a live handle, by contract.
        let plan = unsafe { plan_ref(plan) }?;
        // SAFETY: `args` points to `struct_size` bytes, by contract.
        let a = unsafe { read_sized(args, std::mem::zeroed()) }?;
        let args = Backward {
            q: a.q.into(),
            k: a.k.into(),
            v: a.v.into(),
            o: a.o.into(),
            grad_o: a.grad_o.into(),
            lse: a.lse,
            grad_q: a.grad_q.into(),
            grad_k: a.grad_k.into(),
            grad_v: a.grad_v.into(),
            accumulate: accumulate(&a)?,
        };
        // SAFETY: the tensors hold the rows that the batch names, by contract.
        unsafe { plan.backward(&args, workspace(a.workspace, a.workspace_size), stream.cast()) }
    })
}

fn accumulate(a: &jfa_backward_args) -> Result<Accumulate> {
    let known = JFA_ACCUMULATE_GRAD_Q | JFA_ACCUMULATE_GRAD_K | JFA_ACCUMULATE_GRAD_V;
    if a.accumulate & !known != 0 {
        let rule = "made of JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_K and JFA_ACCUMULATE_GRAD_V";
        return Err(Error::invalid("accumulate", format!("{:#x}", a.accumulate), rule));
    }
    if a.reserved != 0 {
        return Err(Error::invalid("reserved", a.reserved, "0"));
    }
    let has = |bit| a.accumulate & bit != 0;
    Ok(Accumulate {
        grad_q: has(JFA_ACCUMULATE_GRAD_Q),
        grad_k: has(JFA_ACCUMULATE_GRAD_K),
        grad_v: has(JFA_ACCUMULATE_GRAD_V),
    })
}

impl From<jfa_const_tensor> for Tensor {
    fn from(t: jfa_const_tensor) -> Self {
        Tensor { data: t.data.cast_mut(), row_stride: t.row_stride, head_stride: t.head_stride }
    }
}

impl From<jfa_tensor> for Tensor {
    fn from(t: jfa_tensor) -> Self {
        Tensor { data: t.data, row_stride: t.row_stride, head_stride: t.head_stride }
    }
}
