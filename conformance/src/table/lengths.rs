//! Empty and short sequences.

use crate::case::{Case, Mask, Slack};
use crate::dtype::Dtype;

const GROUP: &str = "lengths";

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let case = |name: &str, lengths: &[(usize, usize)]| Case::new(GROUP, name, dtype, lengths);
    let mut cases = vec![
        // A producer that waits for a first tile that never comes hangs, or leaves dK and dV unwritten.
        case("no-queries-first", &[(0, 70), (40, 65), (33, 129)]),
        case("no-queries-middle", &[(40, 65), (0, 130), (33, 129)]),
        case("no-queries-last", &[(40, 65), (33, 129), (0, 64)]),
        case("no-queries-anywhere", &[(0, 65), (0, 1), (0, 300)]),
        case("no-queries-but-in-the-last", &[(0, 1), (0, 1), (255, 511)]),
        // Dividing by a sum of 0, or taking the log of it with the wrong sign, gives NaN or +inf.
        case("no-keys-first", &[(70, 0), (40, 65), (33, 129)]),
        case("no-keys-middle", &[(40, 65), (130, 0), (33, 129)]),
        case("no-keys-last", &[(40, 65), (33, 129), (64, 0)]),
        case("no-keys-anywhere", &[(65, 0), (1, 0), (300, 0)]),
        case("nothing-anywhere", &[(0, 0), (0, 0)]),
        case("nothing-first-middle-last", &[(0, 0), (9, 5), (0, 0), (0, 0), (70, 70), (0, 0)]),
        case("no-keys-next-to-no-queries", &[(5, 0), (0, 5), (5, 5), (0, 5), (5, 0)]),
        case("one-row", &[(1, 1), (1, 1), (1, 1)]),
        case("one-query", &[(1, 300), (1, 64), (1, 1)]),
        case("one-key", &[(300, 1), (64, 1), (1, 1)]),
        // A whole tile of keys against a single query.
        case("one-query-against-one-tile", &[(1, 128)]),
        case("tile-edges", &[(63, 127), (64, 128), (65, 129), (128, 64), (127, 256), (129, 255)]),
        // Scaled-down offsets of batches that made tiles of the wrong sequence.
        case("ragged", &[(0, 253), (120, 174), (84, 84), (0, 311)]),
        case("ragged-long", &[(700, 300), (5, 700)]),
        case("batch-of-none", &[]),
    ];
    // Every query sees at most as many keys as there are: the rest of a causal batch is blind.
    for mask in [Mask::CAUSAL, Mask::CAUSAL_BOTTOM] {
        let mut case = case(&format!("few-keys-{}", mask.name()), &[(76, 1), (34, 1), (146, 1), (10, 0), (0, 10)]);
        case.mask = mask;
        cases.push(case);
    }
    let broadcast = |name: &str, seqlen: usize, keys: &[usize]| {
        let lengths: Vec<(usize, usize)> = keys.iter().map(|&keys| (0, keys)).collect();
        let mut case = Case::new(GROUP, format!("broadcast-{name}"), dtype, &lengths);
        case.broadcast = Some(seqlen);
        case
    };
    cases.extend([
        broadcast("no-keys-first", 70, &[0, 65, 129]),
        broadcast("no-keys-middle", 70, &[65, 0, 0, 129]),
        broadcast("no-keys-last", 70, &[65, 129, 0]),
        broadcast("no-keys-anywhere", 70, &[0, 0, 0]),
        // dQ is a sum over no sequence: 0, and written.
        broadcast("batch-of-none", 16, &[]),
        broadcast("no-queries", 0, &[5, 0, 129]),
        broadcast("one-query", 1, &[1, 128, 0, 77]),
        broadcast("one-key", 65, &[1, 1, 1]),
    ]);
    // Head groups folded into the rows of a tile must not count on one query per sequence.
    let mut grouped = case("queries-0-1-0-1", &[(0, 3), (1, 5), (0, 7), (1, 64)]);
    (grouped.heads_q, grouped.heads_kv, grouped.loose) = (4, 1, false);
    cases.push(grouped);
    // Fewer queries than sequences.
    let mut sparse = vec![(0, 3); 60];
    (sparse[7], sparse[31], sparse[59]) = ((2, 40), (1, 0), (5, 130));
    let mut empties = case("more-sequences-than-queries", &sparse);
    (empties.heads_q, empties.heads_kv) = (7, 1);
    cases.push(empties);
    // Null tensors are fine where there are no rows.
    for broadcast in [None, Some(6)] {
        let mut null = case(if broadcast.is_some() { "null-keys" } else { "null-tensors" }, &[(0, 0), (0, 0), (0, 0)]);
        null.broadcast = broadcast;
        null.layout.tail = (0, 0);
        null.layout.null_if_empty = true;
        null.loose = false;
        cases.push(null);
    }
    let mut padded = case("empty-slots", &[(5, 0), (7, 0), (0, 0), (9, 4)]);
    padded.layout.slack = Slack::UpTo(20);
    cases.push(padded);
    cases
}
