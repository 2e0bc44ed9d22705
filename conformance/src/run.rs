//! Runs one case and says what is wrong.

use std::cell::OnceCell;

use jfa::capi::{JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_V};

use crate::api::status;
use crate::case::{Array, Case, Data, Expect, Mask, Name};
use crate::compare::{Report, Results, compare};
use crate::dtype::Dtype;
use crate::geometry::Geometry;
use crate::reference::{self, Inputs, Reference};
use crate::rng::Rng;
use crate::session::{Session, Target};

/// Standard deviation of gradients before the call, where they count.
const START_FACTOR: f32 = 0.2;

/// What became of a case.
pub enum Outcome {
    /// It ran.
    Done(Report),
    /// The device has too little memory for it.
    Skipped(String),
}

/// Draws the inputs of a case.
pub fn draw(case: &Case, geometry: &Geometry, seed: u64) -> Inputs {
    let mut rng = Rng::new(seed, &case.path());
    let [used_q, used_o, used_kv] = geometry.used;
    let (shift_q, factor_q, shift_k) = match case.data {
        Data::Normal => (0.0, 1.0, 0.0),
        Data::Large => (0.0, 30.0, 0.0),
        // Scores around -16 sqrt(head_dim).
        Data::Negative => (4.0, 1.0, -4.0),
    };
    let mut values = |dtype: Dtype, rows: usize, heads: usize, factor: f32, shift: f32| {
        let mut values = Vec::new();
        rng.normal(rows * heads * case.head_dim, &mut values);
        values.iter_mut().for_each(|x| *x = dtype.round(*x * factor + shift));
        values
    };
    let mut inputs = Inputs {
        q: values(case.dtype, used_q, case.heads_q, factor_q, shift_q),
        k: values(case.dtype, used_kv, case.heads_kv, 1.0, shift_k),
        v: values(case.dtype, used_kv, case.heads_kv, 1.0, 0.0),
        grad_o: values(case.dtype, used_o, case.heads_q, 1.0, 0.0),
        ..Inputs::default()
    };
    // As large as the gradients, so that both show in the sum.
    let mut start = |bit, dtype, rows, heads| match case.accumulate & bit {
        0 => Vec::new(),
        _ => values(dtype, rows, heads, START_FACTOR, 0.0),
    };
    inputs.grad_q = start(JFA_ACCUMULATE_GRAD_Q, case.grad_q_dtype(), used_q, case.heads_q);
    inputs.grad_k = start(JFA_ACCUMULATE_GRAD_K, case.dtype, used_kv, case.heads_kv);
    inputs.grad_v = start(JFA_ACCUMULATE_GRAD_V, case.dtype, used_kv, case.heads_kv);
    inputs
}

/// What a case has in common whenever it runs, where it is run often.
pub struct Known {
    inputs: Inputs,
    reference: Reference,
}

impl Known {
    fn new(case: &Case, seed: u64) -> Self {
        let geometry = Geometry::new(case);
        let inputs = draw(case, &geometry, seed);
        Known { reference: reference::compute(case, &geometry, &inputs), inputs }
    }
}

/// Runs a case; an error is a failure that left nothing to compare.
pub fn run(target: Target, case: &Case, seed: u64, known: &OnceCell<Known>) -> Outcome {
    let target = Target { forward_only: target.forward_only || case.forward_only, ..target };
    let mut report = Report::default();
    let result = match case.expect {
        Expect::Numbers => numbers(target, case, known.get_or_init(|| Known::new(case, seed)), &mut report),
        Expect::Isolation(sequence, name, value) => isolation(target, case, seed, (sequence, name, value), &mut report),
        Expect::SameBits => same_bits(target, case, seed, &mut report),
        Expect::Replay => replay(target, case, seed, &mut report),
        Expect::TwoPlans => two_plans(target, case, seed, &mut report),
        Expect::NoLse => no_lse(target, case, seed, &mut report),
        Expect::Rejected { array, index, value, named } => {
            rejected(target, case, seed, (array, index, value), named, &mut report)
        }
    };
    match result {
        Err(text) if case.layout.sparse && text.contains("cuMemAlloc") => return Outcome::Skipped(text),
        Err(text) => report.fail(text),
        Ok(()) => {}
    }
    Outcome::Done(report)
}

/// Forward and backward from poisoned outputs, with every write checked.
fn pass(target: Target, session: &Session, report: &mut Report) -> Result<Results, String> {
    session.reset()?;
    target.api.expect("jfa_forward", session.forward(true))?;
    let forward = session.results()?;
    target.api.expect("jfa_backward", session.backward())?;
    let results = session.results()?;
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits());
    if !same(&forward.o, &results.o) || !same(&forward.lse, &results.lse) {
        report.fail("the backward changed O or LSE");
    }
    session.violations()?.into_iter().for_each(|text| report.fail(text));
    Ok(results)
}

fn start<'a>(target: Target<'a>, case: &'a Case, inputs: &Inputs) -> Result<Session<'a>, String> {
    let mut session = Session::new(target, case)?;
    session.upload(inputs)?;
    target.api.expect("jfa_plan_update", session.update())?;
    target.api.expect("jfa_plan_check", session.check())?;
    Ok(session)
}

fn verify(case: &Case, inputs: &Inputs, session: &Session, results: &Results, report: &mut Report) {
    let reference = reference::compute(case, &session.geometry, inputs);
    compare(case, &reference, results, report);
}

fn numbers(target: Target, case: &Case, known: &Known, report: &mut Report) -> Result<(), String> {
    let Known { inputs, reference } = known;
    let session = start(target, case, inputs)?;
    let results = pass(target, &session, report)?;
    compare(case, reference, &results, report);
    let info = session.info()?;
    let visible = reference.o.zero.iter().any(|zero| !zero);
    for (phase, tiles) in [("forward", info.forward_tiles), ("backward", info.backward_tiles)] {
        if (tiles > 0) != visible {
            report.fail(format!("{tiles} {phase} tiles, but some query sees a key: {visible}"));
        }
    }
    Ok(())
}

fn isolation(
    target: Target,
    case: &Case,
    seed: u64,
    (b, name, value): (usize, Name, f32),
    report: &mut Report,
) -> Result<(), String> {
    let inputs = draw(case, &Geometry::new(case), seed);
    let mut session = start(target, case, &inputs)?;
    let clean = pass(target, &session, report)?;
    let s = session.geometry.sequences[b];
    let mut infected = inputs.clone();
    let (values, at, len, heads) = match name {
        Name::Q => (&mut infected.q, s.at_q, s.len_q, case.heads_q),
        Name::K => (&mut infected.k, s.at_kv, s.len_kv, case.heads_kv),
        Name::V => (&mut infected.v, s.at_kv, s.len_kv, case.heads_kv),
        _ => (&mut infected.grad_o, s.at_o, s.len_q, case.heads_q),
    };
    let width = heads * case.head_dim;
    values[at * width..(at + len) * width].fill(value);
    session.upload(&infected)?;
    let mut results = pass(target, &session, report)?;
    // What the value reached is there to be seen; then those rows are taken out of the comparison.
    let (o, q, kv) = (case.heads_q * case.head_dim, case.heads_q * case.head_dim, case.heads_kv * case.head_dim);
    let mut spread = false;
    let mut mend = |to: &mut Vec<f32>, from: &[f32], at: usize, len: usize, width: usize| {
        if from.is_empty() {
            return;
        }
        let range = at * width..(at + len) * width;
        spread |= to[range.clone()].iter().any(|x| !x.is_finite());
        to[range.clone()].copy_from_slice(&from[range]);
    };
    mend(&mut results.o, &clean.o, s.at_o, s.len_q, o);
    mend(&mut results.lse, &clean.lse, s.at_o, s.len_q, case.heads_q);
    mend(&mut results.grad_q, &clean.grad_q, s.at_q, s.len_q, q);
    mend(&mut results.grad_k, &clean.grad_k, s.at_kv, s.len_kv, kv);
    mend(&mut results.grad_v, &clean.grad_v, s.at_kv, s.len_kv, kv);
    if !(spread || target.forward_only && matches!(name, Name::GradO)) {
        report.fail(format!("{value} in {name:?} of sequence {b} left no trace in its results"));
    }
    if let Some(text) = clean.difference(&results) {
        report.fail(format!("{value} in {name:?} of sequence {b} reached others: {text}"));
    }
    verify(case, &inputs, &session, &clean, report);
    Ok(())
}

fn same_bits(target: Target, case: &Case, seed: u64, report: &mut Report) -> Result<(), String> {
    let inputs = draw(case, &Geometry::new(case), seed);
    let session = start(target, case, &inputs)?;
    let first = pass(target, &session, report)?;
    for run in 0..4 {
        if let Some(text) = first.difference(&pass(target, &session, report)?) {
            report.fail(format!("repetition {run}: {text}"));
        }
    }
    // On the CPU the number of threads changes nothing either; a GPU may split its work otherwise.
    let others: &[i32] = if target.device_type == 0 { &[1, 2, 5] } else { &[] };
    for &workers in others {
        let other = Case { workers, ..case.clone() };
        let session = start(target, &other, &inputs)?;
        if let Some(text) = first.difference(&pass(target, &session, report)?) {
            report.fail(format!("{workers} workers: {text}"));
        }
    }
    verify(case, &inputs, &session, &first, report);
    Ok(())
}

fn replay(target: Target, case: &Case, seed: u64, report: &mut Report) -> Result<(), String> {
    let inputs = draw(case, &Geometry::new(case), seed);
    let mut session = start(target, case, &inputs)?;
    let first = pass(target, &session, report)?;
    let mut reversed = case.clone();
    reversed.lengths.reverse();
    session.write_offsets(&Geometry::new(&reversed))?;
    target.api.expect("jfa_plan_update", session.update())?;
    target.api.expect("jfa_forward", session.forward(true))?;
    target.api.expect("jfa_backward", session.backward())?;
    session.results()?;
    session.write_offsets(&session.geometry)?;
    target.api.expect("jfa_plan_update", session.update())?;
    if let Some(text) = first.difference(&pass(target, &session, report)?) {
        report.fail(format!("after another batch: {text}"));
    }
    verify(case, &inputs, &session, &first, report);
    Ok(())
}

fn two_plans(target: Target, case: &Case, seed: u64, report: &mut Report) -> Result<(), String> {
    let mut other = Case { mask: Mask::CAUSAL_BOTTOM, name: format!("{} (other)", case.name), ..case.clone() };
    other.lengths.reverse();
    let (inputs, other_inputs) = (draw(case, &Geometry::new(case), seed), draw(&other, &Geometry::new(&other), seed));
    let a = start(target, case, &inputs)?;
    let b = start(target, &other, &other_inputs)?;
    for (session, call) in [(&a, "jfa_forward of a"), (&b, "jfa_forward of b")] {
        target.api.expect(call, session.forward(true))?;
    }
    for (session, call) in [(&b, "jfa_backward of b"), (&a, "jfa_backward of a")] {
        target.api.expect(call, session.backward())?;
    }
    for (session, case, inputs) in [(&a, case, &inputs), (&b, &other, &other_inputs)] {
        session.violations()?.into_iter().for_each(|text| report.fail(text));
        verify(case, inputs, session, &session.results()?, report);
    }
    Ok(())
}

fn no_lse(target: Target, case: &Case, seed: u64, report: &mut Report) -> Result<(), String> {
    let inputs = draw(case, &Geometry::new(case), seed);
    let session = start(target, case, &inputs)?;
    let with = pass(target, &session, report)?;
    session.reset()?;
    target.api.expect("jfa_forward", session.forward(false))?;
    let mut without = session.results()?;
    if without.lse.iter().any(|x| !x.is_nan()) {
        report.fail("LSE was written although it is null");
    }
    session.violations()?.into_iter().for_each(|text| report.fail(text));
    (without.lse, without.grad_q) = (with.lse.clone(), with.grad_q.clone());
    (without.grad_k, without.grad_v) = (with.grad_k.clone(), with.grad_v.clone());
    if let Some(text) = with.difference(&without) {
        report.fail(format!("without LSE: {text}"));
    }
    verify(case, &inputs, &session, &with, report);
    Ok(())
}

/// A batch with a bad offset: refused by name, and nothing is written; the next good one runs.
fn rejected(
    target: Target,
    case: &Case,
    seed: u64,
    (array, index, value): (Array, usize, i64),
    named: [usize; 2],
    report: &mut Report,
) -> Result<(), String> {
    let inputs = draw(case, &Geometry::new(case), seed);
    let mut session = start(target, case, &inputs)?;
    let mut bad = session.geometry.clone();
    let values = match array {
        Array::Q => Some(&mut bad.q_offsets),
        Array::Kv => Some(&mut bad.kv_offsets),
        Array::Lengths => bad.kv_lengths.as_mut(),
    };
    *values.and_then(|values| values.get_mut(index)).ok_or("the case has no such entry")? = value;
    session.write_offsets(&bad)?;
    let updated = session.update();
    let on_device = target.device_type != 0;
    if on_device {
        target.api.expect("jfa_plan_update", updated)?;
    }
    let status = if on_device { session.check() } else { updated };
    let message = target.api.message();
    let name = match array {
        Array::Q => "q_offsets",
        Array::Kv => "kv_offsets",
        Array::Lengths => "kv_lengths",
    };
    if status != status::INVALID_OFFSETS {
        report.fail(format!("{name}[{index}] = {value} gave status {status}, not {}", status::INVALID_OFFSETS));
    } else if !named.iter().any(|index| message.contains(&format!("{name}[{index}]"))) {
        report.fail(format!("the message names neither {name}[{}] nor [{}]: {message}", named[0], named[1]));
    }
    // On a GPU the calls are enqueued and find no tiles; on the CPU they are refused.
    let allowed = if on_device { status::SUCCESS } else { status::NOT_READY };
    for (call, status) in [("jfa_forward", session.forward(true)), ("jfa_backward", session.backward())] {
        if status != allowed {
            report.fail(format!("{call} on a bad batch returned {status}, not {allowed}"));
        }
    }
    let results = session.results()?;
    if results.tensors().iter().any(|(_, values)| values.iter().any(|x| !x.is_nan())) {
        report.fail("a result was written for a bad batch");
    }
    session.violations()?.into_iter().for_each(|text| report.fail(text));
    session.write_offsets(&session.geometry)?;
    target.api.expect("jfa_plan_update after a bad batch", session.update())?;
    let results = pass(target, &session, report)?;
    verify(case, &inputs, &session, &results, report);
    Ok(())
}
