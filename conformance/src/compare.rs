//! Results against the reference.

use std::collections::BTreeMap;

use crate::case::{Case, Data};
use crate::dtype::Dtype;
use crate::reference::{Expected, Reference};

/// Elementwise errors may be this many times the tolerance of the whole tensor.
const ELEMENT_FACTOR: f64 = 5.0;
/// Share of the summed terms that counts as signal where the sum itself may cancel.
const TERM_SHARE: f64 = 0.3;

/// Results of a run: used rows only, `[rows, heads, head_dim]`.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Output.
    pub o: Vec<f32>,
    /// One value per row of O and query head.
    pub lse: Vec<f32>,
    /// Gradient of the queries.
    pub grad_q: Vec<f32>,
    /// Gradient of the keys.
    pub grad_k: Vec<f32>,
    /// Gradient of the values.
    pub grad_v: Vec<f32>,
}

impl Results {
    /// The tensors by name.
    pub fn tensors(&self) -> [(&'static str, &[f32]); 5] {
        [("O", &self.o), ("LSE", &self.lse), ("dQ", &self.grad_q), ("dK", &self.grad_k), ("dV", &self.grad_v)]
    }

    /// Where two runs differ in a bit.
    pub fn difference(&self, other: &Results) -> Option<String> {
        self.tensors().iter().zip(other.tensors()).find_map(|(a, b)| {
            let at = a.1.iter().zip(b.1).position(|(x, y)| x.to_bits() != y.to_bits())?;
            Some(format!("{} differs at element {at}: {} and {}", a.0, a.1[at], b.1[at]))
        })
    }
}

/// Errors of a case: relative to the products that were summed for LSE, relative Frobenius norms for the rest.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Error of each tensor.
    pub errors: BTreeMap<&'static str, f64>,
    /// What is wrong; empty if nothing is.
    pub failures: Vec<String>,
}

impl Report {
    /// Notes a failure.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.failures.push(text.into());
    }

    fn error(&mut self, tensor: &'static str, error: f64) {
        let worst = self.errors.entry(tensor).or_insert(0.0);
        *worst = if error.is_nan() { error } else { worst.max(error) };
    }
}

/// What is lost where `terms` probabilities or score gradients, and the result, underflow: each is off by up to 2^-25
/// in fp16, and their errors add up like random ones.
fn quantum(dtype: Dtype, terms: f64) -> f64 {
    if dtype == Dtype::Fp16 { 1e-7 * terms.sqrt() } else { 1e-35 }
}

/// Compares all tensors.
pub fn compare(case: &Case, reference: &Reference, results: &Results, report: &mut Report) {
    // Large scores carry an fp32 rounding error that an fp32 result shows.
    let spread = case.effective_scale().abs() * (case.head_dim as f64).sqrt();
    let scores = if case.data == Data::Normal { spread } else { 40.0 * spread };
    let tolerance = case.dtype.tolerance() * if case.dtype == Dtype::Fp32 { scores.max(1.0) } else { 1.0 };
    let strict = reference.well_conditioned;
    let dim = case.head_dim;
    let mut check = |name, got: &[f32], want: &Expected, terms| {
        tensor(name, got, want, dim, (tolerance, quantum(case.dtype, terms)), strict, report);
    };
    check("O", &results.o, &reference.o, 1.0);
    let rows = case.lengths.iter().map(|&(q, kv)| case.broadcast.unwrap_or(q).max(kv)).max().unwrap_or(0);
    let terms = (rows * case.heads_q / case.heads_kv).max(4) as f64;
    check("dQ", &results.grad_q, &reference.grad_q, terms);
    check("dK", &results.grad_k, &reference.grad_k, terms);
    check("dV", &results.grad_v, &reference.grad_v, terms);
    lse(case, reference, &results.lse, report);
}

fn lse(case: &Case, reference: &Reference, got: &[f32], report: &mut Report) {
    let tolerance = if case.dtype == Dtype::Fp32 { 2e-6 } else { 1e-5 };
    let want = &reference.lse;
    let mut worst: (f64, usize) = (0.0, 0);
    for (at, (&want, &got)) in want.iter().zip(got).enumerate() {
        let error = match want == f64::NEG_INFINITY {
            true => {
                if got == f32::NEG_INFINITY {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            false => (f64::from(got) - want).abs() / (1.0 + reference.lse_terms[at]),
        };
        // A NaN is the worst of all, and stays.
        if error.is_nan() || error > worst.0 {
            worst = (if error.is_nan() { f64::INFINITY } else { error }, at);
        }
    }
    report.error("LSE", worst.0);
    if worst.0 > tolerance {
        let (row, head) = (worst.1 / case.heads_q, worst.1 % case.heads_q);
        report.fail(format!("LSE of used row {row}, head {head} is {}, not {}", got[worst.1], want[worst.1]));
    }
}

/// Compares one tensor: rows to which nothing contributes, each element, and the relative Frobenius error.
fn tensor(
    name: &'static str,
    got: &[f32],
    want: &Expected,
    dim: usize,
    (tolerance, quantum): (f64, f64),
    strict: bool,
    report: &mut Report,
) {
    let (mut error_square, mut size_square) = (0.0, 0.0);
    let mut worst: (f64, usize) = (0.0, 0);
    for (piece, (got, expected)) in got.chunks(dim).zip(want.values.chunks(dim)).enumerate() {
        if want.zero[piece] {
            if let Some(at) = got.iter().zip(expected).position(|(&x, &y)| f64::from(x) != y) {
                let written = if got[at].to_bits() | 0xffff == u32::MAX { " (never written)" } else { "" };
                let (got, want) = (got[at], expected[at]);
                report.fail(format!("{name} of used row-head {piece} is {got}{written}, not exactly {want}"));
                report.error(name, f64::INFINITY);
                return;
            }
            continue;
        }
        let mut square = 0.0;
        for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let error = ((f64::from(got) - expected).abs() - quantum).max(0.0);
            // `max` swallows a NaN, so that it is looked for first.
            let error = if got.is_finite() { error } else { f64::INFINITY };
            error_square += error * error;
            square += expected * expected;
            let ratio = error / (expected.abs() + want.terms[piece]).max(f64::MIN_POSITIVE);
            if ratio > worst.0 {
                worst = (ratio, piece * dim + at);
            }
        }
        let floor = dim as f64 * (TERM_SHARE * want.terms[piece]).powi(2);
        size_square += if strict { square } else { square.max(floor) };
    }
    let frobenius = if error_square == 0.0 { 0.0 } else { (error_square / size_square).sqrt() };
    report.error(name, frobenius);
    let at = worst.1;
    if worst.0 > ELEMENT_FACTOR * tolerance {
        let got = got[at];
        let written = if got.to_bits() | 0xffff == u32::MAX { " (never written)" } else { "" };
        let expected = want.values[at];
        report.fail(format!(
            "{name} of used row-head {}, element {} is {got}{written}, not {expected:.6e}",
            at / dim,
            at % dim
        ));
    } else if frobenius > tolerance {
        report.fail(format!("{name} has a relative Frobenius error of {frobenius:.2e}, above {tolerance:.1e}"));
    }
}
