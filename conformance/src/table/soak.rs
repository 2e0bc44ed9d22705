//! Small cases that together run every kernel of a device, for very many interleavings of each: several tiles for a CTA,
//! rings that go round, sequences without queries or keys, and queries so large that softmax moves its reference.
//! Lengths are such that most of each kernel is executed, as `CUDASIM_REPORT=2` tells. They are for a simulator with two
//! multiprocessors; some have a single one, which then does twice as much.

use jfa::capi::{JFA_ACCUMULATE_GRAD_K, JFA_ACCUMULATE_GRAD_Q, JFA_ACCUMULATE_GRAD_V};

use crate::case::{Case, Data, Mask, Slack};
use crate::dtype::Dtype;

/// Nothing on either side, one tile of queries and two, one block of keys to three, the last one short and long.
const PACKED: [(usize, usize); 6] = [(0, 9), (5, 300), (30, 0), (0, 0), (130, 200), (1, 1)];
/// For head dimensions with short blocks of keys.
const PACKED_WIDE: [(usize, usize); 6] = [(0, 9), (5, 192), (30, 0), (66, 200), (1, 1), (3, 64)];
/// Keys of the sequences of a broadcast Q.
const KEYS: [usize; 6] = [0, 200, 1, 0, 300, 65];
/// For tiles of 64 rows and 64 keys, of which three CTAs of a multiprocessor take several each.
const KEYS_SHORT: [usize; 10] = [0, 150, 1, 0, 70, 65, 3, 130, 20, 64];
/// For several query heads.
const KEYS_SHARED: [usize; 6] = [0, 200, 1, 300, 65, 128];

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name: &str, head_dim: usize, edit: &dyn Fn(&mut Case)| {
        let mut case = Case::new("soak", format!("{name}-d{head_dim}"), dtype, &PACKED);
        (case.heads_q, case.heads_kv, case.head_dim, case.loose) = (1, 1, head_dim, false);
        edit(&mut case);
        cases.push(case);
    };
    let broadcast = |case: &mut Case, seqlen: usize, keys: &[usize]| {
        case.broadcast = Some(seqlen);
        case.lengths = keys.iter().map(|&keys| (0, keys)).collect();
    };
    for head_dim in [64, 128] {
        // Heads of a group, whose gradients of K and V add up, to what is there or not.
        case("packed", head_dim, &|c| {
            c.heads_q = 2;
            if head_dim == 64 {
                c.accumulate = JFA_ACCUMULATE_GRAD_Q | JFA_ACCUMULATE_GRAD_K | JFA_ACCUMULATE_GRAD_V;
            }
        });
        case("masked", head_dim, &|c| {
            c.data = Data::Large;
            match head_dim {
                64 => (c.mask, c.deterministic) = (Mask::window(200, 7, true), true),
                _ => c.mask = Mask::window(-1, 7, true),
            }
        });
        // Queries that stay in place in the backward: a block of 64 rows, and two of them on two CTAs.
        case("broadcast-33", head_dim, &|c| {
            c.workers = 1;
            broadcast(c, 33, &KEYS_SHORT);
        });
        case("broadcast-70", head_dim, &|c| {
            c.data = Data::Large;
            broadcast(c, 70, &KEYS);
        });
        // Heads that share tiles of queries, of 64 rows and of 128: the backward does not.
        case("shared-17", head_dim, &|c| {
            (c.heads_q, c.workers, c.forward_only, c.data) = (2, 1, true, Data::Large);
            broadcast(c, 17, &KEYS_SHORT);
        });
        case("shared-48", head_dim, &|c| {
            (c.heads_q, c.workers, c.forward_only, c.data) = (2, 1, true, Data::Large);
            broadcast(c, 48, &KEYS_SHARED);
        });
    }
    // More sums of dQ in a fixed order: over the batch, and over the keys of a sequence without a mask.
    case("ordered", 64, &|c| {
        (c.heads_q, c.mask, c.deterministic) = (2, Mask::CAUSAL, true);
        broadcast(c, 70, &KEYS_SHARED);
    });
    case("ordered", 128, &|c| c.deterministic = true);
    for head_dim in [192, 256] {
        // Both have the backward of 256.
        let forward_only = head_dim == 192;
        case("packed", head_dim, &|c| {
            (c.lengths, c.layout.slack, c.forward_only) = (PACKED_WIDE.to_vec(), Slack::UpTo(9), forward_only);
        });
        case("masked", head_dim, &|c| {
            (c.lengths, c.mask) = (PACKED_WIDE.to_vec(), Mask::window(if head_dim == 192 { -1 } else { 100 }, 0, true));
            c.data = if forward_only { Data::Large } else { Data::Normal };
            c.forward_only = forward_only;
        });
    }
    cases
}
