//! The mask's block queries against the definition, pair by pair.

use std::ops::Range;

use jfa::problem::{Alignment, Mask};

/// Whether query `i` sees key `j`, by the definition.
fn sees(mask: &Mask, i: i64, j: i64, len_q: i64, len_kv: i64) -> bool {
    let diagonal = match mask.alignment {
        Alignment::TopLeft => i,
        Alignment::BottomRight => i + len_kv - len_q,
    };
    mask.left.is_none_or(|left| j >= diagonal - left) && mask.right.is_none_or(|right| j <= diagonal + right)
}

/// Calls `check` for every mask and pair of lengths of a small exhaustive grid.
fn for_each(check: impl Fn(&Mask, i64, i64)) {
    let sides = [None, Some(0), Some(1), Some(3), Some(20)];
    for alignment in [Alignment::TopLeft, Alignment::BottomRight] {
        for left in sides {
            for right in sides {
                let mask = Mask { left, right, alignment };
                for len_q in [0, 1, 2, 5, 9] {
                    for len_kv in [0, 1, 3, 6, 10] {
                        check(&mask, len_q, len_kv);
                    }
                }
            }
        }
    }
}

fn ranges(len: i64) -> impl Iterator<Item = Range<i64>> {
    (0..=len).flat_map(move |begin| (begin..=len).map(move |end| begin..end))
}

/// Smallest range that holds every index below `len` for which `hit` holds.
fn hull(len: i64, hit: impl Fn(i64) -> bool) -> Range<i64> {
    let hits: Vec<i64> = (0..len).filter(|&index| hit(index)).collect();
    match (hits.first(), hits.last()) {
        (Some(first), Some(last)) => *first..last + 1,
        _ => 0..0,
    }
}

#[test]
fn keys_are_those_that_some_query_sees() {
    for_each(|mask, len_q, len_kv| {
        for q in ranges(len_q) {
            let expected = hull(len_kv, |j| q.clone().any(|i| sees(mask, i, j, len_q, len_kv)));
            let keys = mask.keys(q.clone(), len_q, len_kv);
            assert_eq!(keys, expected, "{mask:?}, queries {q:?} of {len_q} against {len_kv} keys");
        }
    });
}

#[test]
fn queries_are_those_that_see_some_key() {
    for_each(|mask, len_q, len_kv| {
        for k in ranges(len_kv) {
            let expected = hull(len_q, |i| k.clone().any(|j| sees(mask, i, j, len_q, len_kv)));
            let queries = mask.queries(k.clone(), len_q, len_kv);
            assert_eq!(queries, expected, "{mask:?}, keys {k:?} of {len_kv} against {len_q} queries");
        }
    });
}

#[test]
fn no_seen_key_lies_outside_the_ranges_and_no_row_inside_is_blind() {
    for_each(|mask, len_q, len_kv| {
        for (i, j) in (0..len_q).flat_map(|i| (0..len_kv).map(move |j| (i, j))) {
            let expected = sees(mask, i, j, len_q, len_kv);
            assert_eq!(mask.keys(i..i + 1, len_q, len_kv).contains(&j), expected);
            assert_eq!(mask.queries(j..j + 1, len_q, len_kv).contains(&i), expected);
        }
    });
}

#[test]
fn covers_exactly_when_every_query_sees_every_key() {
    for_each(|mask, len_q, len_kv| {
        for q in ranges(len_q).filter(|q| !q.is_empty()) {
            for k in ranges(len_kv).filter(|k| !k.is_empty()) {
                let expected = q.clone().all(|i| k.clone().all(|j| sees(mask, i, j, len_q, len_kv)));
                let covers = mask.covers(q.clone(), k.clone(), len_q, len_kv);
                assert_eq!(covers, expected, "{mask:?}, {q:?} of {len_q} and {k:?} of {len_kv}");
            }
        }
    });
}

#[test]
fn the_diagonal_depends_on_the_sequence_alone() {
    let causal = |alignment| Mask { left: None, right: Some(0), alignment };
    assert_eq!(causal(Alignment::TopLeft).keys(0..1, 4, 9), 0..1);
    assert_eq!(causal(Alignment::BottomRight).keys(0..1, 4, 9), 0..6);
    assert_eq!(causal(Alignment::BottomRight).keys(0..5, 9, 4), 0..0, "more queries than keys: the first see nothing");
    assert_eq!(causal(Alignment::BottomRight).keys(8..9, 9, 4), 0..4);
}
