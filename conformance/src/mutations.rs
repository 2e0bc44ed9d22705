//! The runner itself: each kind of defect, put into a library that works, is reported.

use std::cell::OnceCell;
use std::ffi::c_char;

use jfa::capi::{self, jfa_backward_args, jfa_batch, jfa_forward_args, jfa_plan, jfa_plan_desc, jfa_plan_details};
use jfa::capi::{jfa_combine_args, jfa_stream, jfa_tensor};

use crate::api::Api;
use crate::case::{Array, Case, Expect, Name};
use crate::compare::Report;
use crate::dtype::Dtype;
use crate::memory::Host;
use crate::run::{self, Outcome};
use crate::session::Target;

unsafe extern "C" fn plan_create(desc: *const jfa_plan_desc, plan: *mut *mut jfa_plan) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_plan_create(desc, plan) as i32 }
}

unsafe extern "C" fn plan_update(plan: *mut jfa_plan, batch: *const jfa_batch, stream: jfa_stream) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_plan_update(plan, batch, stream) as i32 }
}

unsafe extern "C" fn plan_info(plan: *const jfa_plan, details: *mut jfa_plan_details) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_plan_info(plan, details) as i32 }
}

unsafe extern "C" fn plan_check(plan: *const jfa_plan) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_plan_check(plan) as i32 }
}

unsafe extern "C" fn plan_workspace_size(plan: *const jfa_plan, forward: *mut usize, backward: *mut usize) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_plan_workspace_size(plan, forward, backward) as i32 }
}

unsafe extern "C" fn forward(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_forward(plan, args, stream) as i32 }
}

unsafe extern "C" fn backward(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_backward(plan, args, stream) as i32 }
}

unsafe extern "C" fn combine(args: *const jfa_combine_args, stream: jfa_stream) -> i32 {
    // SAFETY: passed on.
    unsafe { capi::jfa_combine(args, stream) as i32 }
}

/// The library as it is linked into this test.
fn linked() -> Api {
    Api {
        version: capi::jfa_version,
        last_error: capi::jfa_last_error as unsafe extern "C" fn() -> *const c_char,
        plan_create,
        plan_update,
        plan_info,
        plan_check,
        plan_workspace_size,
        plan_destroy: capi::jfa_plan_destroy,
        forward,
        backward,
        combine,
        _library: None,
    }
}

fn report(api: &Api, case: &Case) -> Report {
    match run::run(Target { api, memory: &Host, device_type: 0, forward_only: false }, case, 1, &OnceCell::new()) {
        Outcome::Done(report) => report,
        Outcome::Skipped(text) => panic!("skipped: {text}"),
    }
}

fn plain() -> Case {
    Case::new("test", "plain", Dtype::Fp32, &[(9, 20), (4, 0), (0, 6), (12, 7)])
}

fn assert_reported(api: &Api, case: &Case, text: &str) {
    let failures = report(api, case).failures;
    assert!(failures.iter().any(|failure| failure.contains(text)), "no \"{text}\" in {failures:?}");
}

#[test]
fn a_working_library_passes() {
    let mut cases = vec![plain()];
    let rejected = Expect::Rejected { array: Array::Kv, index: 1, value: 90, named: [1, 1] };
    let isolation = Expect::Isolation(3, Name::V, f32::NAN);
    for expect in [isolation, Expect::SameBits, Expect::Replay, Expect::TwoPlans, Expect::NoLse, rejected] {
        cases.push(Case { expect, ..plain() });
    }
    cases.push(Case { accumulate: 7, ..plain() });
    for case in cases {
        assert_eq!(report(&linked(), &case).failures, Vec::<String>::new(), "{:?}", case.expect);
    }
}

/// Adds `amount` to an element of a contiguous fp32 tensor; negative indices lie before it.
unsafe fn add(tensor: jfa_tensor, element: isize, amount: f32) {
    // SAFETY: the tensors of a session have 17 * 16 bytes before and 256 behind them.
    unsafe { *tensor.data.cast::<f32>().offset(element) += amount }
}

#[test]
fn a_wrong_element_of_o_is_reported() {
    unsafe extern "C" fn wrong(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 3 is in use.
        unsafe {
            let status = forward(plan, args, stream);
            add((*args).o, 3 * 128 + 70, 1e-3);
            status
        }
    }
    assert_reported(&Api { forward: wrong, ..linked() }, &plain(), "O of used row-head 7, element 6");
}

#[test]
fn a_small_error_everywhere_is_reported() {
    unsafe extern "C" fn wrong(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; all 9 rows of the first sequence are in use.
        unsafe {
            let status = backward(plan, args, stream);
            (0..9 * 128).for_each(|at| *(*args).grad_q.data.cast::<f32>().add(at) *= 1.0 + 2e-5);
            status
        }
    }
    assert_reported(&Api { backward: wrong, ..linked() }, &plain(), "dQ");
}

#[test]
fn an_unwritten_row_is_reported() {
    unsafe extern "C" fn lazy(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 21 is a key that no query sees.
        unsafe {
            let row = (*args).grad_v.data.cast::<f32>().add(21 * 128);
            let before: Vec<f32> = (0..128).map(|at| *row.add(at)).collect();
            let status = backward(plan, args, stream);
            before.iter().enumerate().for_each(|(at, &x)| *row.add(at) = x);
            status
        }
    }
    assert_reported(&Api { backward: lazy, ..linked() }, &plain(), "never written");
}

#[test]
fn a_gradient_that_overwrites_is_reported() {
    unsafe extern "C" fn overwriting(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on, with a bit less.
        unsafe { backward(plan, &jfa_backward_args { accumulate: 5, ..*args }, stream) }
    }
    assert_reported(
        &Api { backward: overwriting, ..linked() },
        &Case { accumulate: 7, ..plain() },
        "dK of used row-head",
    );
}

#[test]
fn a_zero_in_place_of_what_was_there_is_reported() {
    unsafe extern "C" fn clearing(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 21 is a key that no query sees.
        unsafe {
            let status = backward(plan, args, stream);
            (*args).grad_v.data.cast::<f32>().add(21 * 128).write_bytes(0, 128);
            status
        }
    }
    assert_reported(&Api { backward: clearing, ..linked() }, &Case { accumulate: 4, ..plain() }, "not exactly");
}

#[test]
fn a_zero_that_is_not_exact_is_reported() {
    unsafe extern "C" fn wrong(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 10 belongs to the sequence without keys.
        unsafe {
            let status = forward(plan, args, stream);
            add((*args).o, 10 * 128, 1e-30);
            status
        }
    }
    assert_reported(&Api { forward: wrong, ..linked() }, &plain(), "not exactly 0");
}

#[test]
fn a_write_before_or_behind_the_rows_is_reported() {
    unsafe extern "C" fn before(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; the byte lies in the guard.
        unsafe {
            let status = backward(plan, args, stream);
            *(*args).grad_k.data.cast::<f32>().offset(-1) = 0.0;
            status
        }
    }
    unsafe extern "C" fn behind(plan: *const jfa_plan, args: *const jfa_backward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 33 is behind the last offset.
        unsafe {
            let status = backward(plan, args, stream);
            *(*args).grad_k.data.cast::<f32>().add(33 * 128 + 5) = 0.0;
            status
        }
    }
    for backward in [before as unsafe extern "C" fn(_, _, _) -> _, behind] {
        assert_reported(&Api { backward, ..linked() }, &plain(), "GradK was written outside");
    }
}

#[test]
fn a_write_to_an_input_or_behind_the_workspace_is_reported() {
    unsafe extern "C" fn input(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; Q is memory of the session.
        unsafe {
            let status = forward(plan, args, stream);
            *(*args).q.data.cast::<f32>().cast_mut() = 0.0;
            status
        }
    }
    unsafe extern "C" fn beyond(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; a guard lies behind the workspace.
        unsafe {
            let status = forward(plan, args, stream);
            *(*args).workspace.cast::<u8>().add((*args).workspace_size) ^= 1;
            status
        }
    }
    assert_reported(&Api { forward: input, ..linked() }, &plain(), "Q was written outside");
    assert_reported(&Api { forward: beyond, ..linked() }, &plain(), "around the forward's workspace");
}

#[test]
fn a_wrong_lse_is_reported() {
    unsafe extern "C" fn wrong(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; the LSE has an element 2.
        unsafe {
            let status = forward(plan, args, stream);
            *(*args).lse.add(2) += 1e-3;
            status
        }
    }
    unsafe extern "C" fn infinite(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; row 10 belongs to the sequence without keys.
        unsafe {
            let status = forward(plan, args, stream);
            *(*args).lse.add(10) = f32::INFINITY;
            status
        }
    }
    for forward in [wrong as unsafe extern "C" fn(_, _, _) -> _, infinite] {
        assert_reported(&Api { forward, ..linked() }, &plain(), "LSE of used row");
    }
}

#[test]
fn a_value_that_leaks_into_a_neighbour_is_reported() {
    unsafe extern "C" fn leaky(plan: *const jfa_plan, args: *const jfa_forward_args, stream: jfa_stream) -> i32 {
        // SAFETY: passed on; V has more than 27 rows, and O more than 3.
        unsafe {
            let status = forward(plan, args, stream);
            let foreign = *(*args).v.data.cast::<f32>().add(27 * 128);
            add((*args).o, 3 * 128, foreign * 0.0);
            status
        }
    }
    let case = Case { expect: Expect::Isolation(3, Name::V, f32::NAN), ..plain() };
    assert_reported(&Api { forward: leaky, ..linked() }, &case, "reached others");
}

#[test]
fn an_accepted_bad_offset_is_reported() {
    unsafe extern "C" fn blind(plan: *mut jfa_plan, batch: *const jfa_batch, stream: jfa_stream) -> i32 {
        // SAFETY: passed on.
        unsafe { plan_update(plan, batch, stream) }.min(0)
    }
    let case = Case { expect: Expect::Rejected { array: Array::Kv, index: 1, value: 90, named: [1, 1] }, ..plain() };
    assert_reported(&Api { plan_update: blind, ..linked() }, &case, "gave status 0");
}
