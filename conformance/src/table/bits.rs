//! Runs that must repeat bit by bit, and plans that are used again or beside another.

use crate::case::{Case, Expect, Mask, Slack};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let ragged = [(40, 170), (0, 9), (133, 50), (65, 129), (7, 0), (212, 303), (1, 1), (64, 64)];
    let mut cases = Vec::new();
    let masks = [Mask::NONE, Mask::CAUSAL, Mask::window(50, 10, true)];
    let mut add = |name: &str, mask: Mask, broadcast: Option<usize>, expect: Expect| {
        let kind = if broadcast.is_some() { "broadcast" } else { "packed" };
        let mut case = Case::new("bits", format!("{name}-{kind}-{}", mask.name()), dtype, &ragged);
        (case.heads_q, case.heads_kv, case.deterministic) = (4, 2, true);
        (case.mask, case.broadcast, case.expect) = (mask, broadcast, expect);
        cases.push(case);
    };
    for broadcast in [None, Some(150)] {
        for mask in masks {
            // Sums over blocks of keys, over heads of a group and over the batch need a fixed order.
            add("repeated", mask, broadcast, Expect::SameBits);
        }
        add("replayed", Mask::NONE, broadcast, Expect::Replay);
        add("replayed", Mask::CAUSAL, broadcast, Expect::Replay);
        add("two-plans", Mask::NONE, broadcast, Expect::TwoPlans);
        add("without-lse", Mask::CAUSAL_BOTTOM, broadcast, Expect::NoLse);
    }
    let mut slots = Case::new("bits", "replayed-slots", dtype, &ragged);
    (slots.layout.slack, slots.deterministic, slots.expect) = (Slack::UpTo(17), true, Expect::Replay);
    cases.push(slots);
    cases
}
