//! The grid: head dimensions, head groups, masks, packed and broadcast queries, each pair of which meets somewhere.

use crate::case::{Case, Mask};
use crate::dtype::Dtype;
use crate::rng::Rng;

/// Lengths around the sizes of tiles.
const LENGTHS: [usize; 16] = [1, 2, 7, 16, 31, 63, 64, 65, 100, 127, 128, 129, 191, 193, 257, 300];
/// Query heads and key heads.
const HEADS: [(usize, usize); 7] = [(1, 1), (2, 2), (4, 2), (3, 1), (6, 2), (7, 1), (4, 1)];
/// Windows of every kind, in both alignments.
const MASKS: [Mask; 11] = [
    Mask::NONE,
    Mask::CAUSAL,
    Mask::CAUSAL_BOTTOM,
    Mask::window(16, 0, false),
    Mask::window(63, 0, true),
    Mask::window(20, 20, false),
    Mask::window(40, 7, true),
    Mask::window(0, -1, true),
    Mask::window(-1, 100, false),
    Mask::window(0, 0, false),
    Mask::window(129, 64, true),
];

/// Broadcast queries, their heads and key heads, and the head dimension.
const GROUPS: [(usize, (usize, usize), usize); 10] = [
    (1, (8, 1), 128),
    (1, (32, 2), 64),
    (3, (7, 1), 128),
    (16, (4, 1), 64),
    (17, (6, 1), 40),
    (17, (8, 2), 128),
    (33, (16, 1), 64),
    (64, (4, 2), 64),
    (64, (12, 1), 128),
    (100, (8, 1), 72),
];

/// The grid for some types.
pub fn cases(dtypes: &[Dtype]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in dtypes {
        for (d, head_dim) in [8, 16, 40, 64, 72, 96, 104, 128, 192, 256].into_iter().enumerate() {
            for broadcast in [false, true] {
                // Strides that are coprime with the lists, so that all combinations of neighbours appear.
                for turn in 0..3 {
                    let index = (d * 2 + usize::from(broadcast)) * 3 + turn;
                    cases.push(grid(dtype, head_dim, broadcast, index));
                }
            }
        }
        // The two dimensions that are tuned meet every mask.
        for head_dim in [64, 128] {
            for (m, mask) in MASKS.into_iter().enumerate() {
                let mut case = grid(dtype, head_dim, m % 2 == 0, m);
                case.mask = mask;
                case.name = format!("masks-d{head_dim}-{}", mask.name());
                cases.push(case);
            }
        }
        // Few queries of several heads may share a tile, in packs or not, in one block of rows or more.
        for (queries, (heads_q, heads_kv), head_dim) in GROUPS {
            let name = format!("group-d{head_dim}-h{heads_q}.{heads_kv}-q{queries}");
            let mut case = Case::new("numeric", name, dtype, &[(0, 65), (0, 0), (0, 300), (0, 1), (0, 129)]);
            (case.heads_q, case.heads_kv, case.head_dim) = (heads_q, heads_kv, head_dim);
            case.broadcast = Some(queries);
            cases.push(case);
        }
        cases.extend((8..=256).step_by(8).map(|head_dim| {
            let mut case = Case::new("numeric", format!("every-d{head_dim}"), dtype, &[(5, 9), (17, 33), (70, 12)]);
            case.head_dim = head_dim;
            case
        }));
    }
    cases
}

fn grid(dtype: Dtype, head_dim: usize, broadcast: bool, index: usize) -> Case {
    let mut rng = Rng::new(0, &format!("grid {head_dim} {index}"));
    let count = 3 + index % 3;
    let lengths: Vec<(usize, usize)> = (0..count).map(|_| (rng.pick(&LENGTHS), rng.pick(&LENGTHS))).collect();
    let (heads_q, heads_kv) = HEADS[index * 3 % HEADS.len()];
    let mask = MASKS[index * 4 % MASKS.len()];
    let kind = if broadcast { "broadcast" } else { "packed" };
    let name = format!("{kind}-d{head_dim}-h{heads_q}.{heads_kv}-{}-{index}", mask.name());
    let mut case = Case::new("numeric", name, dtype, &lengths);
    (case.heads_q, case.heads_kv, case.head_dim, case.mask) = (heads_q, heads_kv, head_dim, mask);
    case.broadcast = broadcast.then(|| [1, 16, 33, 64, 65, 128, 150][index % 7]);
    case.grad_q_fp32 = index % 3 == 1;
    case.int64 = index % 2 == 1;
    case.layout.lead = (index as i64 % 4, index as i64 % 5);
    case
}
