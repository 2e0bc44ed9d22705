//! Small forward problems whose inputs are the same on every machine, to the bit: no library function is in them.

use crate::case::{Case, Mask};
use crate::dtype::Dtype;
use crate::geometry::{Geometry, Sequence};
use crate::reference::Inputs;
use crate::rng::Rng;

/// Deepest leaf of a tree of exponents: its power of two is exact in fp16, too.
const DEEPEST: usize = 20;

/// How inputs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// All exponents of a row are integers, and its exponentials add up to a power of two: ex2 and rcp are exact there,
    /// so that all that counts in O is the order of the sums, and their rounding.
    Powers,
    /// Bell-shaped Q, K and V.
    Random,
}

/// One problem.
#[derive(Debug)]
pub struct Problem {
    /// Operator, batch and layout.
    pub case: Case,
    /// Inputs.
    pub scores: Scores,
}

/// The problems, about 200 KB of results.
///
/// Results depend on which tile a CTA has first, so that the number of CTAs is given: any GPU deals these tiles alike.
pub fn all() -> Vec<Problem> {
    use Dtype::{Bf16, Fp16};
    use Scores::{Powers, Random};
    const BOTTOM: Mask = Mask::CAUSAL_BOTTOM;
    let broadcast = |name: &str, dtype, scores, head_dim, queries, keys: &[usize]| {
        let lengths: Vec<_> = keys.iter().map(|&keys| (0, keys)).collect();
        let mut case = Case::new("vectors", name, dtype, &lengths);
        (case.heads_q, case.heads_kv, case.head_dim, case.broadcast) = (1, 1, head_dim, Some(queries));
        Problem { case, scores }
    };
    let packed = |name: &str, dtype, scores, (head_dim, heads_q), mask, lengths: &[(usize, usize)]| {
        let mut case = Case::new("vectors", name, dtype, lengths);
        (case.heads_q, case.heads_kv, case.head_dim, case.mask) = (heads_q, 1, head_dim, mask);
        (case.layout.lead, case.int64) = ((2, 3), true);
        Problem { case, scores }
    };
    let mut problems = vec![
        broadcast("powers-d64", Bf16, Powers, 64, 20, &[1, 0, 64, 129, 300, 65]),
        broadcast("powers-d64", Fp16, Powers, 64, 20, &[200, 1, 0, 64, 385, 65]),
        broadcast("powers-d128", Bf16, Powers, 128, 12, &[1, 70, 0, 300, 128]),
        broadcast("powers-d128", Fp16, Powers, 128, 12, &[300, 1, 70, 0, 129]),
        packed("powers-causal-d128", Bf16, Powers, (128, 1), BOTTOM, &[(100, 150), (0, 40), (9, 0), (17, 30)]),
        packed("powers-window-d64", Fp16, Powers, (64, 2), Mask::window(80, 7, true), &[(32, 200), (20, 5)]),
        broadcast("random-d128", Bf16, Random, 128, 20, &[300, 64, 1, 0, 129]),
        broadcast("random-d64", Fp16, Random, 64, 30, &[130, 17, 0, 400]),
        packed("random-causal-d64", Bf16, Random, (64, 2), Mask::CAUSAL, &[(40, 40), (100, 100)]),
        packed("random-window-d128", Fp16, Random, (128, 1), Mask::window(40, 7, true), &[(50, 140)]),
    ];
    for problem in &mut problems {
        let case = &mut problem.case;
        (case.workers, case.loose) = (2, false);
        if problem.scores == Powers {
            case.scale = scale_of_one();
        }
    }
    problems
}

/// The factor whose product with log2(e) is 1 in fp32: a score is then the exponent of 2.
fn scale_of_one() -> f32 {
    let near = std::f32::consts::LN_2.to_bits();
    let candidates = (near - 2..=near + 2).map(f32::from_bits);
    candidates.into_iter().find(|scale| scale * std::f32::consts::LOG2_E == 1.0).unwrap_or(f32::NAN)
}

impl Problem {
    /// Inputs of the problem.
    pub fn inputs(&self, geometry: &Geometry) -> Inputs {
        let case = &self.case;
        let mut rng = Rng::new(0, &case.path());
        let [used_q, used_o, used_kv] = geometry.used;
        let mut random = |rows: usize, heads: usize| -> Vec<f32> {
            (0..rows * heads * case.head_dim).map(|_| case.dtype.round(bell(&mut rng))).collect()
        };
        let mut inputs = Inputs {
            q: random(used_q, case.heads_q),
            k: random(used_kv, case.heads_kv),
            v: random(used_kv, case.heads_kv),
            grad_o: vec![0.0; used_o * case.heads_q * case.head_dim],
            ..Inputs::default()
        };
        if self.scores == Scores::Powers {
            inputs.q.fill(0.0);
            for (b, s) in geometry.sequences.iter().enumerate() {
                self.powers(b, s, &mut rng, &mut inputs);
            }
        }
        inputs
    }

    /// The same batch with packed queries, for which Hopper has one kernel whatever their number: those that all
    /// sequences share are given to each.
    pub fn packed(&self, inputs: &Inputs) -> (Case, Inputs) {
        let (mut case, mut inputs) = (self.case.clone(), inputs.clone());
        if let Some(queries) = case.broadcast.take() {
            case.lengths.iter_mut().for_each(|length| length.0 = queries);
            inputs.q = inputs.q.repeat(case.lengths.len());
        }
        (case, inputs)
    }

    /// Each query looks at one column of K, which holds the exponents of its keys times a factor of the column. In some
    /// columns of V the large terms of its output cancel, so that the last bits of the sums show.
    fn powers(&self, b: usize, s: &Sequence, rng: &mut Rng, inputs: &mut Inputs) {
        let case = &self.case;
        let group = case.heads_q / case.heads_kv;
        assert!(s.len_q * group <= case.head_dim, "{}: more queries than columns", case.path());
        for head in 0..case.heads_q {
            for i in 0..s.len_q {
                let (column, columns) = (head % group * s.len_q + i, group * s.len_q);
                let factor = [1.0, -1.0, 2.0, -0.5][(column + head) % 4];
                inputs.q[((s.at_q + i) * case.heads_q + head) * case.head_dim + column] = factor;
                let (len_q, len_kv) = case.length(b);
                let seen: Vec<usize> = (0..len_kv).filter(|&j| case.mask.sees(i, j, len_q, len_kv)).collect();
                let exponents = exponents(seen.len(), case.dtype, rng);
                let at = |j: usize, d: usize| ((s.at_kv + j) * case.heads_kv + head / group) * case.head_dim + d;
                (0..len_kv).for_each(|j| inputs.k[at(j, column)] = (rng.below(121) as f32 - 60.0) / factor);
                seen.iter().zip(&exponents).for_each(|(&j, exponent)| inputs.k[at(j, column)] = exponent / factor);
                for d in (column..case.head_dim).step_by(columns) {
                    let values = cancelling(&exponents, case.dtype, rng);
                    seen.iter().zip(values).for_each(|(&j, value)| inputs.v[at(j, d)] = value);
                }
            }
        }
    }
}

/// A value with the significand of 11 bits that fp16 has: a sum of four uniform ones, of deviation 1.
fn bell(rng: &mut Rng) -> f32 {
    let sum: usize = (0..4).map(|_| rng.below(1024)).sum();
    (sum as f32 - 2046.0) / 591.0
}

/// Exponents whose powers of two add up to a power of two, in fp32 at least: the depths of the leaves of a binary tree,
/// all moved by the same number. One time in four the last keys, which come first, are far smaller than the others, so
/// that the softmax has to change its reference.
fn exponents(keys: usize, dtype: Dtype, rng: &mut Rng) -> Vec<f32> {
    let (shifts, gap): (&[i32], _) = match dtype {
        Dtype::Fp16 => (&[0, 3, -2, 17], 30),
        _ => (&[0, 9, -20, 35], 75),
    };
    let last = if keys > 128 && rng.once_in(4) { (keys - 1) % 128 + 1 } else { 0 };
    let shift = if last > 0 { gap } else { rng.pick(shifts) };
    let mut exponents: Vec<f32> = depths(keys - last, rng).into_iter().map(|depth| (shift - depth) as f32).collect();
    exponents.extend(depths(last, rng).into_iter().map(|depth| -depth as f32));
    exponents
}

/// Depths of the leaves of a random binary tree, in random order.
fn depths(leaves: usize, rng: &mut Rng) -> Vec<i32> {
    let mut depths = vec![0; leaves.min(1)];
    while depths.len() < leaves {
        let at = rng.below(depths.len());
        if (depths[at] as usize) < DEEPEST {
            depths[at] += 1;
            depths.push(depths[at]);
        }
    }
    for i in (1..depths.len()).rev() {
        depths.swap(i, rng.below(i + 1));
    }
    depths
}

/// Values for keys with these exponents: of each two with neighbouring ones, the terms cancel exactly. One pair in four
/// has small values instead, which are what is left of the sum.
fn cancelling(exponents: &[f32], dtype: Dtype, rng: &mut Rng) -> Vec<f32> {
    let small = if dtype == Dtype::Fp16 { 2f32.powi(-12) } else { 2f32.powi(-18) };
    let mut order: Vec<usize> = (0..exponents.len()).collect();
    order.sort_by(|&a, &b| exponents[b].total_cmp(&exponents[a]));
    let mut values: Vec<f32> = exponents.iter().map(|_| dtype.round(bell(rng) * small)).collect();
    for pair in order.chunks_exact(2) {
        let ratio = exponents[pair[0]] - exponents[pair[1]];
        if ratio <= 8.0 && !rng.once_in(4) {
            values[pair[0]] = dtype.round(bell(rng));
            values[pair[1]] = -values[pair[0]] * ratio.exp2();
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_results_small() {
        let problems = all();
        let mut paths: Vec<String> = problems.iter().map(|problem| problem.case.path()).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), problems.len());
        let elements = |case: &Case| Geometry::new(case).used[1] * case.heads_q * (case.head_dim * 2 + 4);
        assert!(problems.iter().map(|problem| elements(&problem.case)).sum::<usize>() < 250_000);
    }

    #[test]
    fn every_input_has_its_type() {
        for problem in all() {
            let inputs = problem.inputs(&Geometry::new(&problem.case));
            for values in [&inputs.q, &inputs.k, &inputs.v] {
                assert!(values.iter().all(|&x| problem.case.dtype.round(x) == x), "{}", problem.case.path());
            }
        }
    }

    #[test]
    fn powers_have_integral_exponents_and_sums_that_are_powers() {
        assert_eq!(scale_of_one() * std::f32::consts::LOG2_E, 1.0);
        for Problem { case, scores } in all() {
            if scores != Scores::Powers {
                continue;
            }
            let geometry = Geometry::new(&case);
            let inputs = Problem { case: case.clone(), scores }.inputs(&geometry);
            let group = case.heads_q / case.heads_kv;
            for (b, s) in geometry.sequences.iter().enumerate() {
                for (i, head) in (0..s.len_q).flat_map(|i| (0..case.heads_q).map(move |head| (i, head))) {
                    let row = |values: &[f32], at: usize| values[at * case.head_dim..][..case.head_dim].to_vec();
                    let q = row(&inputs.q, (s.at_q + i) * case.heads_q + head);
                    let (len_q, len_kv) = case.length(b);
                    let mut sum = 0f64;
                    for j in (0..len_kv).filter(|&j| case.mask.sees(i, j, len_q, len_kv)) {
                        let k = row(&inputs.k, (s.at_kv + j) * case.heads_kv + head / group);
                        let score: f64 = q.iter().zip(&k).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                        assert_eq!(score, score.trunc());
                        sum += score.exp2();
                    }
                    let sum = sum as f32;
                    assert_eq!(sum.to_bits() & 0x7F_FFFF, 0, "{} {b} {i}: {sum}", case.path());
                }
            }
        }
    }
}
