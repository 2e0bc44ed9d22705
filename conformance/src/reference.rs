//! Attention and its gradients by the definition, in float64.

use rayon::prelude::*;

use crate::case::Case;
use crate::geometry::{Geometry, Sequence};

/// Values of the inputs: used rows only, `[rows, heads, head_dim]`, already rounded to their type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Queries.
    pub q: Vec<f32>,
    /// Keys.
    pub k: Vec<f32>,
    /// Values.
    pub v: Vec<f32>,
    /// Gradient of the output.
    pub grad_o: Vec<f32>,
    /// What dQ is added to, rounded to its type; empty if it is overwritten.
    pub grad_q: Vec<f32>,
    /// The same of dK.
    pub grad_k: Vec<f32>,
    /// The same of dV.
    pub grad_v: Vec<f32>,
}

/// What a tensor must hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Values, `[rows, heads, head_dim]`.
    pub values: Vec<f64>,
    /// For each row and head the size of the terms that were summed: the scale of unavoidable rounding errors.
    pub terms: Vec<f64>,
    /// For each row and head whether nothing contributes to it: it is exactly 0, or what it was before the call.
    pub zero: Vec<bool>,
}

impl Expected {
    /// Adds what was there before the call, if it counts.
    fn accumulate(&mut self, start: &[f32]) {
        self.values.iter_mut().zip(start).for_each(|(a, &b)| *a += f64::from(b));
    }

    fn new(rows: usize, heads: usize, dim: usize) -> Self {
        Expected {
            values: vec![0.0; rows * heads * dim],
            terms: vec![0.0; rows * heads],
            zero: vec![true; rows * heads],
        }
    }

    fn add(&mut self, at: usize, part: &Rows, row: usize, dim: usize) {
        if part.zero[row] {
            return;
        }
        self.zero[at] = false;
        self.terms[at] += part.terms[row];
        let to = &mut self.values[at * dim..(at + 1) * dim];
        to.iter_mut().zip(&part.values[row * dim..(row + 1) * dim]).for_each(|(a, b)| *a += b);
    }
}

/// What a run must give.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Output.
    pub o: Expected,
    /// One value per row of O and query head.
    pub lse: Vec<f64>,
    /// Size of the products that each score of the row sums.
    pub lse_terms: Vec<f64>,
    /// Gradient of the queries.
    pub grad_q: Expected,
    /// Gradient of the keys.
    pub grad_k: Expected,
    /// Gradient of the values.
    pub grad_v: Expected,
    /// Whether nearly all rows see enough keys for their gradients not to cancel.
    pub well_conditioned: bool,
}

/// Rows of one head of one sequence.
struct Rows {
    values: Vec<f64>,
    terms: Vec<f64>,
    zero: Vec<bool>,
}

impl Rows {
    fn new(rows: usize, dim: usize) -> Self {
        Rows { values: vec![0.0; rows * dim], terms: vec![0.0; rows], zero: vec![true; rows] }
    }

    fn add(&mut self, row: usize, factor: f64, x: &[f64], term: f64) {
        let dim = x.len();
        self.values[row * dim..(row + 1) * dim].iter_mut().zip(x).for_each(|(a, b)| *a += factor * b);
        self.terms[row] += term;
        self.zero[row] = false;
    }
}

/// One query head of one sequence.
struct Head {
    o: Rows,
    /// LSE, and the size of the products in its scores.
    lse: Vec<(f64, f64)>,
    grad_q: Rows,
}

/// Results of one key head of one sequence.
struct Part {
    /// The query heads of the group.
    heads: Vec<Head>,
    grad_k: Rows,
    grad_v: Rows,
    /// Query rows that see 1 to 3 keys, and all that see any.
    thin: usize,
    seeing: usize,
}

/// One head of some rows, as float64.
fn take(values: &[f32], at: usize, len: usize, head: usize, heads: usize, dim: usize) -> Vec<f64> {
    let piece = |row| &values[((at + row) * heads + head) * dim..][..dim];
    (0..len).flat_map(|row| piece(row).iter().map(|&x| f64::from(x))).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Norm over the square root of the number of elements.
fn rms(x: &[f64]) -> f64 {
    (dot(x, x) / x.len() as f64).sqrt()
}

fn attend(case: &Case, inputs: &Inputs, s: &Sequence, head_kv: usize) -> Part {
    let (dim, group) = (case.head_dim, case.heads_q / case.heads_kv);
    let scale = case.effective_scale();
    let k = take(&inputs.k, s.at_kv, s.len_kv, head_kv, case.heads_kv, dim);
    let v = take(&inputs.v, s.at_kv, s.len_kv, head_kv, case.heads_kv, dim);
    let row = |x: &[f64], i: usize| -> Vec<f64> { x[i * dim..(i + 1) * dim].to_vec() };
    let norms = |x: &[f64]| -> Vec<f64> { (0..s.len_kv).map(|j| rms(&x[j * dim..(j + 1) * dim])).collect() };
    let (k_rms, v_rms) = (norms(&k), norms(&v));
    let (mut grad_k, mut grad_v) = (Rows::new(s.len_kv, dim), Rows::new(s.len_kv, dim));
    let (mut heads, mut thin, mut seeing) = (Vec::new(), 0, 0);
    for head in head_kv * group..(head_kv + 1) * group {
        let q = take(&inputs.q, s.at_q, s.len_q, head, case.heads_q, dim);
        let grad_o = take(&inputs.grad_o, s.at_o, s.len_q, head, case.heads_q, dim);
        let (mut o, mut grad_q) = (Rows::new(s.len_q, dim), Rows::new(s.len_q, dim));
        let mut lse = vec![(f64::NEG_INFINITY, 0.0); s.len_q];
        for (i, (lse, size)) in lse.iter_mut().enumerate() {
            let keys: Vec<usize> = (0..s.len_kv).filter(|&j| case.mask.sees(i, j, s.len_q, s.len_kv)).collect();
            if keys.is_empty() {
                continue;
            }
            seeing += 1;
            thin += usize::from(keys.len() < 4);
            let (q_i, grad_o_i) = (row(&q, i), row(&grad_o, i));
            let scores: Vec<f64> = keys.iter().map(|&j| scale * dot(&q_i, &k[j * dim..(j + 1) * dim])).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            *lse = max + sum.ln();
            let p: Vec<f64> = scores.iter().map(|s| (s - *lse).exp()).collect();
            for (&j, &p) in keys.iter().zip(&p) {
                o.add(i, p, &v[j * dim..(j + 1) * dim], p * v_rms[j]);
            }
            let o_i = row(&o.values, i);
            let delta = dot(&grad_o_i, &o_i);
            let rounding = (dim as f64).sqrt() * rms(&grad_o_i) * rms(&o_i);
            let (q_rms, grad_o_rms) = (rms(&q_i), rms(&grad_o_i));
            *size = scale.abs() * dim as f64 * q_rms * keys.iter().map(|&j| k_rms[j]).fold(0.0, f64::max);
            for (&j, &p) in keys.iter().zip(&p) {
                let grad_p = dot(&grad_o_i, &v[j * dim..(j + 1) * dim]);
                let grad_s = scale * p * (grad_p - delta);
                let term = scale.abs() * p * (grad_p.abs() + delta.abs() + rounding);
                grad_q.add(i, grad_s, &k[j * dim..(j + 1) * dim], term * k_rms[j]);
                grad_k.add(j, grad_s, &q_i, term * q_rms);
                grad_v.add(j, p, &grad_o_i, p * grad_o_rms);
            }
        }
        heads.push(Head { o, lse, grad_q });
    }
    Part { heads, grad_k, grad_v, thin, seeing }
}

/// Computes everything for the batch.
pub fn compute(case: &Case, geometry: &Geometry, inputs: &Inputs) -> Reference {
    let (dim, group) = (case.head_dim, case.heads_q / case.heads_kv);
    let [used_q, used_o, used_kv] = geometry.used;
    let mut out = Reference {
        o: Expected::new(used_o, case.heads_q, dim),
        lse: vec![f64::NEG_INFINITY; used_o * case.heads_q],
        lse_terms: vec![0.0; used_o * case.heads_q],
        grad_q: Expected::new(used_q, case.heads_q, dim),
        grad_k: Expected::new(used_kv, case.heads_kv, dim),
        grad_v: Expected::new(used_kv, case.heads_kv, dim),
        well_conditioned: true,
    };
    let (mut thin, mut seeing) = (0, 0);
    for chunk in geometry.sequences.chunks(1024) {
        let parts: Vec<Vec<Part>> = chunk
            .par_iter()
            .map(|s| (0..case.heads_kv).into_par_iter().map(|head| attend(case, inputs, s, head)).collect())
            .collect();
        for (s, parts) in chunk.iter().zip(parts) {
            for (head_kv, part) in parts.iter().enumerate() {
                thin += part.thin;
                seeing += part.seeing;
                for (member, Head { o, lse, grad_q }) in part.heads.iter().enumerate() {
                    let head = head_kv * group + member;
                    for (i, &(lse, size)) in lse.iter().enumerate() {
                        let at = (s.at_o + i) * case.heads_q + head;
                        out.o.add(at, o, i, dim);
                        (out.lse[at], out.lse_terms[at]) = (lse, size);
                        out.grad_q.add((s.at_q + i) * case.heads_q + head, grad_q, i, dim);
                    }
                }
                for j in 0..s.len_kv {
                    let at = (s.at_kv + j) * case.heads_kv + head_kv;
                    out.grad_k.add(at, &part.grad_k, j, dim);
                    out.grad_v.add(at, &part.grad_v, j, dim);
                }
            }
        }
    }
    out.grad_q.accumulate(&inputs.grad_q);
    out.grad_k.accumulate(&inputs.grad_k);
    out.grad_v.accumulate(&inputs.grad_v);
    // Standard deviation of the scores; beyond 2 a softmax is nearly one-hot.
    let spread = case.effective_scale().abs() * (dim as f64).sqrt();
    out.well_conditioned = case.data == crate::case::Data::Normal && spread <= 2.0 && thin * 20 <= seeing;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;
    use crate::run;

    /// Central differences of sum(O * dO) against the gradients.
    #[test]
    fn gradients_are_the_derivatives() {
        let mut case = Case::new("test", "derivative", Dtype::Fp32, &[(3, 5), (4, 2), (0, 3)]);
        (case.heads_q, case.heads_kv, case.head_dim) = (4, 2, 8);
        case.mask = crate::case::Mask::window(2, 1, true);
        for broadcast in [None, Some(3)] {
            case.broadcast = broadcast;
            let geometry = Geometry::new(&case);
            let inputs = run::draw(&case, &geometry, 7);
            let reference = compute(&case, &geometry, &inputs);
            let loss = |inputs: &Inputs| {
                let o = compute(&case, &geometry, inputs).o.values;
                o.iter().zip(&inputs.grad_o).map(|(o, g)| o * f64::from(*g)).sum::<f64>()
            };
            type Field = fn(&mut Inputs) -> &mut Vec<f32>;
            let fields: [(Field, &Expected); 3] = [
                (|i| &mut i.q, &reference.grad_q),
                (|i| &mut i.k, &reference.grad_k),
                (|i| &mut i.v, &reference.grad_v),
            ];
            for (field, grad) in fields {
                for at in (0..grad.values.len()).step_by(7) {
                    let (mut low, mut high) = (inputs.clone(), inputs.clone());
                    field(&mut low)[at] -= 0.0078125;
                    field(&mut high)[at] += 0.0078125;
                    let step = f64::from(field(&mut high)[at]) - f64::from(field(&mut low)[at]);
                    let slope = (loss(&high) - loss(&low)) / step;
                    assert!((slope - grad.values[at]).abs() < 1e-3, "{slope} against {}", grad.values[at]);
                }
            }
        }
    }
}
