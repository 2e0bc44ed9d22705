//! Sizes beyond 16 and 32 bits: sequences, rows, elements.

use crate::case::{Case, Mask, Slack};
use crate::dtype::Dtype;

/// All cases.
pub fn cases(dtype: Dtype) -> Vec<Case> {
    let mut cases = Vec::new();
    // A grid dimension of 65535 is the limit of two axes of three: more sequences than that go missing silently.
    for (name, mask) in [("full", Mask::NONE), ("causal", Mask::CAUSAL_BOTTOM)] {
        let lengths: Vec<(usize, usize)> = (0..70_000).map(|b| (b * 7 % 4, b * 5 % 3)).collect();
        let mut many = Case::new("sizes", format!("70000-sequences-{name}"), dtype, &lengths);
        (many.heads_q, many.heads_kv, many.head_dim, many.mask) = (2, 1, 8, mask);
        cases.push(many);
    }
    let lengths: Vec<(usize, usize)> = (0..70_000).map(|b| (0, b * 5 % 4)).collect();
    let mut many = Case::new("sizes", "70000-sequences-broadcast", dtype, &lengths);
    (many.heads_q, many.heads_kv, many.head_dim, many.broadcast) = (2, 1, 8, Some(3));
    cases.push(many);
    // Lengths beyond 16 bits.
    let mut long = Case::new("sizes", "70000-keys", dtype, &[(3, 70_000), (2, 5)]);
    (long.heads_q, long.heads_kv, long.head_dim) = (1, 1, 8);
    cases.push(long.clone());
    (long.name, long.lengths, long.mask) = ("70000-queries".into(), vec![(70_000, 3), (5, 2)], Mask::NONE);
    cases.push(long);

    // More than 2^31 elements, most of which are address space only.
    let sparse = |name: &str, edit: &dyn Fn(&mut Case)| {
        let mut case = Case::new("sizes", name, dtype, &[(3, 4), (2, 3), (4, 2)]);
        (case.layout.sparse, case.layout.tail) = (true, (0, 0));
        edit(&mut case);
        case
    };
    let stride = (1 << 29) + 8;
    cases.push(sparse("keys-beyond-2^31-by-stride", &|c| c.layout.row_strides = (None, Some(stride))));
    cases.push(sparse("queries-beyond-2^31-by-stride", &|c| c.layout.row_strides = (Some(stride), None)));
    cases.push(sparse("broadcast-output-beyond-2^31-by-stride", &|c| {
        (c.broadcast, c.layout.row_strides) = (Some(3), (Some(stride), None));
    }));
    cases.push(sparse("keys-beyond-2^31-by-rows", &|c| c.layout.slack = Slack::First((1 << 31) / 128)));
    cases.push(sparse("queries-beyond-2^31-by-rows", &|c| c.layout.lead = ((1 << 31) / 128, 0)));
    cases.push(sparse("rows-beyond-2^31-bytes-int64", &|c| {
        (c.layout.lead, c.int64) = ((1 << 24, 1 << 25), true);
    }));
    cases
}
