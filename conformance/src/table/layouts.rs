//! Memory layouts: strides, gaps, fused buffers, types of offsets, head counts.

use crate::case::{Case, Mask, Slack};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let ragged = [(40, 70), (0, 9), (33, 50), (65, 129), (7, 0), (12, 3)];
    let case = |name: &str, edit: &dyn Fn(&mut Case)| {
        let mut case = Case::new("layouts", name, dtype, &ragged);
        (case.heads_q, case.heads_kv) = (4, 2);
        edit(&mut case);
        case
    };
    let mut cases = vec![
        case("contiguous", &|c| c.layout.tail = (0, 0)),
        case("default-strides", &|c| c.layout.default_strides = true),
        case("default-totals", &|c| c.layout.default_totals = true),
        case("exact-maxima", &|c| c.loose = false),
        case("int64", &|c| c.int64 = true),
        case("fused-kv", &|c| c.layout.fused_kv = true),
        case("fused-kv-padded", &|c| (c.layout.fused_kv, c.layout.padding) = (true, 8)),
        case("padded-rows", &|c| c.layout.padding = 24),
        case("heads-first", &|c| c.layout.heads_first = true),
        case("heads-first-padded", &|c| (c.layout.heads_first, c.layout.padding) = (true, 8)),
        case("heads-first-fused", &|c| (c.layout.heads_first, c.layout.fused_kv) = (true, true)),
        case("leading-rows", &|c| c.layout.lead = (11, 130)),
        case("trailing-rows", &|c| c.layout.tail = (131, 65)),
        case("slots", &|c| c.layout.slack = Slack::UpTo(33)),
        case("slots-int64-leading", &|c| {
            (c.layout.slack, c.int64, c.layout.lead) = (Slack::UpTo(9), true, (3, 7));
        }),
        // A cumulative length of 9 in slots of 13: lengths must not be taken from the offsets.
        case("slots-small", &|c| {
            (c.lengths, c.layout.slack) = (vec![(3, 3), (2, 2), (4, 4)], Slack::UpTo(3));
        }),
        case("grad-q-fp32", &|c| c.grad_q_fp32 = true),
        // The prefix of dK was left unwritten where the group is no power of two and the dimension no multiple of 64.
        case("group-of-7-d72", &|c| (c.heads_q, c.heads_kv, c.head_dim) = (7, 1, 72)),
        case("group-of-7-d104-causal", &|c| {
            (c.heads_q, c.heads_kv, c.head_dim, c.mask) = (7, 1, 104, Mask::CAUSAL_BOTTOM);
        }),
        case("d192-short", &|c| (c.head_dim, c.lengths) = (192, vec![(3, 7), (7, 3)])),
        case("d256-strided", &|c| (c.head_dim, c.layout.heads_first) = (256, true)),
        case("many-heads", &|c| {
            (c.heads_q, c.heads_kv, c.lengths) = (96, 48, vec![(3, 5), (17, 2)]);
        }),
        case("odd-heads", &|c| (c.heads_q, c.heads_kv) = (15, 5)),
        case("one-worker", &|c| c.workers = 1),
        case("deterministic", &|c| c.deterministic = true),
    ];
    // A stride that is never used may hold anything: it must not reach an alignment check or a descriptor.
    for (name, lengths) in [("heads", &ragged[..]), ("rows-and-heads", &[(1, 1)])] {
        cases.push(case(&format!("stray-strides-of-{name}"), &|c| {
            (c.heads_q, c.heads_kv, c.layout.stray_strides) = (1, 1, true);
            (c.lengths, c.layout.tail, c.loose) = (lengths.to_vec(), (0, 0), false);
        }));
    }
    cases.push(case("stray-stride-of-one-query", &|c| {
        (c.lengths, c.layout.stray_strides, c.layout.tail) = (vec![(1, 70)], true, (0, 0));
    }));
    cases.push(case("stray-stride-of-one-broadcast-query", &|c| {
        (c.broadcast, c.lengths, c.layout.stray_strides, c.layout.tail) = (Some(1), vec![(0, 70)], true, (0, 0));
    }));
    for name in ["plain", "fused-kv", "heads-first", "padded", "slots", "leading"] {
        let keys: Vec<(usize, usize)> = ragged.iter().map(|&(_, keys)| (0, keys)).collect();
        // Queries of both heads of a group fill a tile on their own, or share one.
        for (kind, queries) in [("broadcast", 67), ("short-broadcast", 30)] {
            cases.push(case(&format!("{kind}-{name}"), &|c| {
                (c.broadcast, c.lengths) = (Some(queries), keys.clone());
                match name {
                    "fused-kv" => c.layout.fused_kv = true,
                    "heads-first" => c.layout.heads_first = true,
                    "padded" => c.layout.padding = 40,
                    "slots" => c.layout.slack = Slack::UpTo(21),
                    "leading" => (c.layout.lead, c.grad_q_fp32) = ((0, 19), true),
                    _ => {}
                }
            }));
        }
    }
    cases
}
