//! Batches that break a rule: refused by name, nothing written, and the plan works again afterwards.

use crate::case::{Array, Case, Expect, Slack};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    // Packed, without a lead: q_offsets 0 5 14 14 21, kv_offsets 0 7 10 30 34 plus the slack of each slot.
    let lengths = [(5, 7), (9, 3), (0, 20), (7, 4)];
    let mut cases = Vec::new();
    let mut add = |name: &str, array, index, value, named| {
        for int64 in [false, true] {
            let bits = if int64 { 64 } else { 32 };
            let mut case = Case::new("rejections", format!("{name}-int{bits}"), dtype, &lengths);
            (case.int64, case.loose) = (int64, false);
            case.expect = Expect::Rejected { array, index, value, named };
            if array == Array::Lengths {
                case.layout.slack = Slack::UpTo(3);
            }
            cases.push(case);
        }
    };
    add("q-decreases", Array::Q, 2, 4, [2, 2]);
    add("kv-decreases", Array::Kv, 3, 9, [3, 3]);
    add("q-negative", Array::Q, 0, -1, [0, 0]);
    add("kv-negative", Array::Kv, 0, -5, [0, 0]);
    add("q-negative-inside", Array::Q, 1, -2, [1, 1]);
    // Totals are 21 + 3 and 34 + 5 rows.
    add("q-beyond-the-rows", Array::Q, 4, 25, [4, 4]);
    add("kv-beyond-the-rows", Array::Kv, 4, 40, [4, 4]);
    add("kv-far-beyond-the-rows", Array::Kv, 4, i64::from(i32::MAX), [4, 4]);
    // The longest are 9 queries and 20 keys.
    add("q-too-long", Array::Q, 2, 15, [1, 2]);
    add("kv-too-long", Array::Kv, 3, 31, [2, 3]);
    add("length-negative", Array::Lengths, 1, -1, [1, 1]);
    add("length-beyond-its-slot", Array::Lengths, 3, 8, [3, 3]);
    cases
}
