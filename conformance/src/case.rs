//! One case: an operator, a batch, a memory layout, data, and what must come out.

use crate::dtype::Dtype;

/// A sliding window, by the definition of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Keys to the left of the diagonal, -1 for all.
    pub left: i32,
    /// Keys to the right of the diagonal, -1 for all.
    pub right: i32,
    /// Whether the last query lies on the last key, rather than the first on the first.
    pub bottom_right: bool,
}

impl Mask {
    /// Hides nothing.
    pub const NONE: Mask = Mask { left: -1, right: -1, bottom_right: false };
    /// Causal from the top left.
    pub const CAUSAL: Mask = Mask { left: -1, right: 0, bottom_right: false };
    /// Causal from the bottom right.
    pub const CAUSAL_BOTTOM: Mask = Mask { left: -1, right: 0, bottom_right: true };

    /// A window around the diagonal.
    pub const fn window(left: i32, right: i32, bottom_right: bool) -> Mask {
        Mask { left, right, bottom_right }
    }

    /// Whether query `i` sees key `j`.
    pub fn sees(&self, i: usize, j: usize, len_q: usize, len_kv: usize) -> bool {
        let diagonal = i as i64 + if self.bottom_right { len_kv as i64 - len_q as i64 } else { 0 };
        let j = j as i64;
        (self.left < 0 || j >= diagonal - i64::from(self.left))
            && (self.right < 0 || j <= diagonal + i64::from(self.right))
    }

    /// Short name.
    pub fn name(&self) -> String {
        let side = |width: i32| if width < 0 { "inf".into() } else { width.to_string() };
        match (self.left, self.right) {
            (-1, -1) => "full".into(),
            _ => format!("w{}-{}{}", side(self.left), side(self.right), if self.bottom_right { "br" } else { "tl" }),
        }
    }
}

/// Unused rows behind the keys of a slot, which make `kv_lengths` necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slack {
    /// Slots are full; `kv_lengths` is null.
    None,
    /// Up to this many rows, different for every sequence.
    UpTo(i64),
    /// This many rows behind the first sequence only.
    First(i64),
}

/// Where rows and heads lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows before the first sequence: `q_offsets[0]`, `kv_offsets[0]`.
    pub lead: (i64, i64),
    /// Rows behind the last sequence.
    pub tail: (i64, i64),
    /// Unused rows between key sequences.
    pub slack: Slack,
    /// `[heads, rows, head_dim]` rather than `[rows, heads, head_dim]`.
    pub heads_first: bool,
    /// Elements behind every row, a multiple of 8.
    pub padding: i64,
    /// K and V (and dK and dV) are the halves of each row of one buffer.
    pub fused_kv: bool,
    /// Strides of dimensions of size 1 hold garbage.
    pub stray_strides: bool,
    /// Strides are passed as 0.
    pub default_strides: bool,
    /// Tensors without rows are null.
    pub null_if_empty: bool,
    /// Row strides of the query and the key side, in place of those that follow from the rest.
    pub row_strides: (Option<i64>, Option<i64>),
    /// Only the rows of sequences are touched: the tensors are larger than memory should be.
    pub sparse: bool,
    /// The batch says -1 for its totals.
    pub default_totals: bool,
}

impl Layout {
    /// Contiguous, with a few foreign rows before and behind.
    pub const PLAIN: Layout = Layout {
        lead: (0, 0),
        tail: (3, 5),
        slack: Slack::None,
        heads_first: false,
        padding: 0,
        fused_kv: false,
        stray_strides: false,
        default_strides: false,
        null_if_empty: false,
        row_strides: (None, None),
        sparse: false,
        default_totals: false,
    };
}

/// How inputs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Standard normal.
    Normal,
    /// Queries 30 times as large: softmax is nearly one-hot.
    Large,
    /// Every score is far below 0, so that exp(0 - LSE) overflows.
    Negative,
}

/// A tensor of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Output.
    O,
    /// Gradient of the output.
    GradO,
    /// Gradient of the queries.
    GradQ,
    /// Gradient of the keys.
    GradK,
    /// Gradient of the values.
    GradV,
}

/// Which array of the batch is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// `q_offsets`.
    Q,
    /// `kv_offsets`.
    Kv,
    /// `kv_lengths`.
    Lengths,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expect {
    /// All results equal the reference.
    Numbers,
    /// A value put into every row of one input of one sequence stays there.
    Isolation(usize, Name, f32),
    /// Runs give the same bits, whatever the number of workers.
    SameBits,
    /// Another batch in between changes nothing.
    Replay,
    /// Two plans take turns.
    TwoPlans,
    /// The forward works without an LSE.
    NoLse,
    /// An offset is set to a value that breaks a rule. The error names the array and one of the two indices.
    Rejected { array: Array, index: usize, value: i64, named: [usize; 2] },
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Case {
    /// Section of the report.
    pub group: &'static str,
    /// Name within its group.
    pub name: String,
    /// Type of the tensors.
    pub dtype: Dtype,
    /// dQ in fp32.
    pub grad_q_fp32: bool,
    /// Offsets have 64 bits.
    pub int64: bool,
    /// Query heads.
    pub heads_q: usize,
    /// Key heads.
    pub heads_kv: usize,
    /// Elements of a head's row.
    pub head_dim: usize,
    /// Which keys are seen.
    pub mask: Mask,
    /// Factor of the scores, 0 for the default.
    pub scale: f32,
    /// Length of one dense Q for all.
    pub broadcast: Option<usize>,
    /// JFA_DETERMINISTIC.
    pub deterministic: bool,
    /// Bits of `jfa_backward_args.accumulate`.
    pub accumulate: u32,
    /// Leave out the backward.
    pub forward_only: bool,
    /// `max_workers`.
    pub workers: i32,
    /// The plan's maxima are above the batch's sizes.
    pub loose: bool,
    /// Queries (unused with `broadcast`) and keys of every sequence.
    pub lengths: Vec<(usize, usize)>,
    /// Memory layout.
    pub layout: Layout,
    /// Data.
    pub data: Data,
    /// Expectation.
    pub expect: Expect,
}

impl Case {
    /// A plain case: one head of 64, no mask, a plan that fits loosely.
    pub fn new(group: &'static str, name: impl Into<String>, dtype: Dtype, lengths: &[(usize, usize)]) -> Self {
        Case {
            group,
            name: name.into(),
            dtype,
            grad_q_fp32: false,
            int64: false,
            heads_q: 2,
            heads_kv: 2,
            head_dim: 64,
            mask: Mask::NONE,
            scale: 0.0,
            broadcast: None,
            deterministic: false,
            accumulate: 0,
            forward_only: false,
            workers: 0,
            loose: true,
            lengths: lengths.to_vec(),
            layout: Layout::PLAIN,
            data: Data::Normal,
            expect: Expect::Numbers,
        }
    }

    /// Name in the whole table.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.group, self.name, self.dtype.name())
    }

    /// Queries and keys of sequence `b`.
    pub fn length(&self, b: usize) -> (usize, usize) {
        let (q, kv) = self.lengths[b];
        (self.broadcast.unwrap_or(q), kv)
    }

    /// Type of dQ.
    pub fn grad_q_dtype(&self) -> Dtype {
        if self.grad_q_fp32 { Dtype::Fp32 } else { self.dtype }
    }

    /// The factor of the scores.
    pub fn effective_scale(&self) -> f64 {
        match self.scale {
            0.0 => 1.0 / (self.head_dim as f64).sqrt(),
            scale => f64::from(scale),
        }
    }
}
