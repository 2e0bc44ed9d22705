//! Values: NaN and Inf that must stay where they are, large scores, very negative ones, scales.

use crate::case::{Case, Data, Expect, Mask, Name, Slack};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let ragged = [(40, 70), (33, 50), (65, 129), (7, 3)];
    let case = |name: &str| Case::new("values", name, dtype, &ragged);
    let mut cases = Vec::new();
    // Masked probabilities are 0, but 0 * NaN is not: rows of neighbours in the same tile have to be left out. Every
    // case has NaN in the rows around the sequences; these have it inside a neighbour.
    for (value, value_name) in [(f32::NAN, "nan"), (f32::INFINITY, "inf")] {
        for name in [Name::Q, Name::K, Name::V, Name::GradO] {
            for b in [0, 1, 3] {
                let mut case = case(&format!("{value_name}-in-{name:?}-of-{b}"));
                case.expect = Expect::Isolation(b, name, value);
                case.deterministic = true;
                cases.push(case);
            }
        }
    }
    // The slot's tail belongs to the sequence but is not part of it.
    for mask in [Mask::NONE, Mask::CAUSAL, Mask::window(20, 5, true)] {
        let mut tail = case(&format!("nan-in-slot-tails-{}", mask.name()));
        (tail.mask, tail.layout.slack) = (mask, Slack::UpTo(40));
        cases.push(tail);
    }
    let mut beyond = case("nan-beyond-the-last-offset");
    beyond.layout.tail = (200, 300);
    cases.push(beyond);
    let mut before = case("nan-before-the-first-offset");
    before.layout.lead = (150, 70);
    cases.push(before);

    for mask in [Mask::NONE, Mask::CAUSAL_BOTTOM] {
        for (data, name) in [(Data::Large, "large-scores"), (Data::Negative, "very-negative-scores")] {
            // A padded tail has score 0; with an LSE below -88.7 its exp(0 - LSE) is infinite, and 0 times that NaN.
            for head_dim in [64, 128] {
                let mut case = case(&format!("{name}-d{head_dim}-{}", mask.name()));
                case.lengths = vec![(64, 192), (1, 65), (100, 63), (3, 1), (130, 200)];
                (case.head_dim, case.mask, case.data) = (head_dim, mask, data);
                cases.push(case);
            }
        }
    }
    let mut both = case("large-scores-broadcast");
    (both.broadcast, both.data) = (Some(70), Data::Large);
    cases.push(both);

    for (name, scale) in [("given", 0.3), ("negative", -0.125), ("tiny", 1e-3), ("one", 1.0)] {
        for mask in [Mask::NONE, Mask::window(30, 0, true)] {
            let mut case = case(&format!("scale-{name}-{}", mask.name()));
            (case.scale, case.mask) = (scale, mask);
            cases.push(case);
        }
    }
    // With a negative factor the largest product gives the smallest score.
    let mut flipped = case("scale-negative-large-scores");
    (flipped.scale, flipped.data) = (-0.125, Data::Large);
    cases.push(flipped);
    cases
}
