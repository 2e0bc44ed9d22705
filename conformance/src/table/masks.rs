//! Windows: which query sees which key, above all where lengths differ.

use crate::case::{Case, Mask};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name: String, mask: Mask, lengths: &[(usize, usize)]| {
        let mut case = Case::new("masks", format!("{name}-{}", mask.name()), dtype, lengths);
        (case.mask, case.heads_kv) = (mask, 1);
        cases.push(case);
    };
    let mixed = [(70, 30), (30, 70), (129, 128), (128, 129), (5, 200), (200, 5), (64, 64), (1, 9), (9, 1)];
    for bottom_right in [false, true] {
        let window = |left, right| Mask::window(left, right, bottom_right);
        // Clamping a width by the longest sequence of the batch drops keys where queries outnumber keys.
        case("causal".into(), window(-1, 0), &mixed);
        case("right-beyond-keys".into(), window(-1, 150), &mixed);
        case("right-beyond-keys".into(), window(3, 100), &mixed);
        case("left-beyond-keys".into(), window(150, 0), &mixed);
        case("wider-than-all".into(), window(1000, 1000), &mixed);
        case("widest".into(), window(i32::MAX, i32::MAX), &mixed);
        case("diagonal-only".into(), window(0, 0), &mixed);
        case("narrow".into(), window(2, 1), &mixed);
        case("left-only".into(), window(10, -1), &mixed);
        case("right-only".into(), window(-1, 10), &mixed);
        case("past-only".into(), window(64, 0), &mixed);
        // Whole tiles are blind, on the side of the queries and of the keys.
        case("blind-blocks".into(), window(8, 8), &[(400, 60), (60, 400), (300, 300)]);
        case("blind-blocks".into(), window(0, 0), &[(400, 60), (60, 400)]);
        // Tiles of many keys, behind which fewer are taken ahead than behind those of few.
        case("long".into(), window(-1, 0), &[(700, 700), (90, 90), (650, 650)]);
    }
    for bottom_right in [false, true] {
        let mut case = Case::new("masks", "", dtype, &[(0, 5), (0, 64), (0, 0), (0, 200), (0, 130)]);
        (case.broadcast, case.mask) = (Some(100), Mask::window(30, 0, bottom_right));
        case.name = format!("broadcast-{}", case.mask.name());
        cases.push(case.clone());
        case.mask = Mask::window(-1, 0, bottom_right);
        case.name = format!("broadcast-{}", case.mask.name());
        cases.push(case);
    }
    cases
}
