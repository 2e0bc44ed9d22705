//! Gradients that are added to what their tensors hold.

use jfa::capi::{JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_V};

use crate::case::{Case, Expect, Mask, Slack};
use crate::dtype::Dtype;

const ALL: u32 = JFA_ACCUMULATE_GRAD_Q | JFA_ACCUMULATE_GRAD_K | JFA_ACCUMULATE_GRAD_V;
/// Lengths with an empty side in every place, and blocks of keys of every kind.
const RAGGED: [(usize, usize); 9] =
    [(0, 9), (40, 170), (70, 0), (133, 50), (65, 129), (0, 0), (212, 303), (1, 1), (64, 64)];

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let case = |name: &str, broadcast: Option<usize>, edit: &dyn Fn(&mut Case)| {
        let kind = broadcast.map_or_else(|| "packed".into(), |seqlen| format!("broadcast-{seqlen}"));
        let mut case = Case::new("accumulate", format!("{name}-{kind}"), dtype, &RAGGED);
        (case.heads_q, case.heads_kv, case.broadcast, case.accumulate) = (4, 2, broadcast, ALL);
        edit(&mut case);
        case
    };
    let mut cases = Vec::new();
    // Few queries and many are different kernels.
    for broadcast in [None, Some(70), Some(150)] {
        // A bit that reaches the wrong tensor adds to poison, or overwrites what is there.
        for (name, bits) in [
            ("grad-q", JFA_ACCUMULATE_GRAD_Q),
            ("grad-k", JFA_ACCUMULATE_GRAD_K),
            ("grad-v", JFA_ACCUMULATE_GRAD_V),
            ("grad-k-and-v", JFA_ACCUMULATE_GRAD_K | JFA_ACCUMULATE_GRAD_V),
        ] {
            cases.push(case(name, broadcast, &|c| c.accumulate = bits));
        }
        cases.extend([
            case("all", broadcast, &|_| {}),
            case("all-heads", broadcast, &|c| (c.heads_q, c.heads_kv) = (2, 2)),
            case("one-key-head", broadcast, &|c| (c.heads_q, c.heads_kv, c.head_dim) = (3, 1, 128)),
            case("d40", broadcast, &|c| c.head_dim = 40),
            case("d256", broadcast, &|c| c.head_dim = 256),
            case("grad-q-fp32", broadcast, &|c| c.grad_q_fp32 = true),
            case("deterministic", broadcast, &|c| (c.deterministic, c.expect) = (true, Expect::SameBits)),
            case("replayed", broadcast, &|c| (c.deterministic, c.expect) = (true, Expect::Replay)),
            // Keys that no query sees, and queries that see no key.
            case("causal", broadcast, &|c| c.mask = Mask::CAUSAL),
            case("blind", broadcast, &|c| c.mask = Mask::window(8, 8, false)),
            case("no-keys", broadcast, &|c| c.lengths.iter_mut().for_each(|length| length.1 = 0)),
            case("batch-of-none", broadcast, &|c| c.lengths.clear()),
            case("slots", broadcast, &|c| (c.layout.slack, c.layout.lead) = (Slack::UpTo(33), (0, 3))),
            case("fused-kv", broadcast, &|c| (c.layout.fused_kv, c.layout.padding) = (true, 8)),
            case("heads-first", broadcast, &|c| c.layout.heads_first = true),
        ]);
    }
    cases.push(case("no-queries", None, &|c| c.lengths.iter_mut().for_each(|length| length.0 = 0)));
    cases.push(case("no-queries", Some(0), &|_| {}));
    cases
}
