//! The problem: shapes, types and mask of one attention operator, and everything that is checked about them.

use std::ops::Range;

use crate::error::{Error, Result};

/// Largest number of sequences in a batch.
pub const MAX_BATCH: i64 = 1 << 20;
/// Largest length of one sequence, query or key side.
pub const MAX_SEQLEN: i64 = (1 << 31) - (1 << 16);
/// Largest number of rows of one tensor.
pub const MAX_ROWS: i64 = 1 << 40;
/// Largest number of heads.
pub const MAX_HEADS: i32 = 1 << 12;
/// Largest head dimension.
pub const MAX_HEAD_DIM: i32 = 256;
/// Pointers, row strides and head strides are multiples of this, in bytes.
pub const ALIGNMENT: usize = 16;

/// Where a plan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The portable backend, on the threads of this process.
    Cpu,
    /// The CUDA device with this ordinal.
    Cuda(u32),
}

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bf16 | Dtype::Fp16 => 2,
            Dtype::Fp32 => 4,
        }
    }

    /// As it occurs in the names of kernels.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp32 => "fp32",
        }
    }
}

/// Element type of the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexType {
    /// 32-bit signed.
    Int32,
    /// 64-bit signed.
    Int64,
}

/// Which query the diagonal of a window starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Query 0 lies on key 0.
    TopLeft,
    /// The last query of a sequence lies on its last key.
    BottomRight,
}

/// A sliding window: query `i` sees the keys `d - left ..= d + right` around its diagonal `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Keys seen to the left of the diagonal, `None` for all.
    pub left: Option<i64>,
    /// Keys seen to the right of the diagonal, `None` for all; 0 is causal.
    pub right: Option<i64>,
    /// Where the diagonal runs.
    pub alignment: Alignment,
}

impl Mask {
    /// The mask that hides nothing.
    pub const NONE: Mask = Mask { left: None, right: None, alignment: Alignment::TopLeft };

    /// Whether every query sees every key.
    pub fn hides_nothing(&self) -> bool {
        self.left.is_none() && self.right.is_none()
    }

    /// The key on the diagonal of query 0.
    pub fn diagonal(&self, len_q: i64, len_kv: i64) -> i64 {
        match self.alignment {
            Alignment::TopLeft => 0,
            Alignment::BottomRight => len_kv - len_q,
        }
    }

    /// The keys that at least one of the queries in `q` sees; empty if there is none.
    pub fn keys(&self, q: Range<i64>, len_q: i64, len_kv: i64) -> Range<i64> {
        if q.is_empty() {
            return 0..0;
        }
        let d = self.diagonal(len_q, len_kv);
        let begin = self.left.map_or(0, |left| (q.start + d - left).max(0));
        let end = self.right.map_or(len_kv, |right| (q.end + d + right).min(len_kv));
        if begin < end { begin..end } else { 0..0 }
    }

    /// The queries that see at least one of the keys in `k`; empty if there is none.
    pub fn queries(&self, k: Range<i64>, len_q: i64, len_kv: i64) -> Range<i64> {
        if k.is_empty() {
            return 0..0;
        }
        let d = self.diagonal(len_q, len_kv);
        let begin = self.right.map_or(0, |right| (k.start - d - right).max(0));
        let end = self.left.map_or(len_q, |left| (k.end - d + left).min(len_q));
        if begin < end { begin..end } else { 0..0 }
    }

    /// Whether every query in `q` sees every key in `k`, so that no score needs to be masked.
    pub fn covers(&self, q: Range<i64>, k: Range<i64>, len_q: i64, len_kv: i64) -> bool {
        let d = self.diagonal(len_q, len_kv);
        self.left.is_none_or(|left| k.start >= q.end - 1 + d - left)
            && self.right.is_none_or(|right| k.end - 1 <= q.start + d + right)
    }
}

/// The largest sizes that a plan must handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequences.
    pub batch: i64,
    /// Rows of packed Q; unused for broadcast Q.
    pub total_q: i64,
    /// Rows of K and V.
    pub total_kv: i64,
    /// Longest query sequence; for broadcast Q, the exact length of the dense Q.
    pub seqlen_q: i64,
    /// Longest key sequence.
    pub seqlen_kv: i64,
}

/// One attention operator: what a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where it runs.
    pub device: Device,
    /// Type of Q, K, V, O and their gradients.
    pub dtype: Dtype,
    /// Type of dQ: `dtype` or `Fp32`.
    pub grad_q_dtype: Dtype,
    /// Type of offsets and lengths.
    pub index_type: IndexType,
    /// Query heads.
    pub heads_q: i32,
    /// Key and value heads; divides `heads_q`.
    pub heads_kv: i32,
    /// Elements of one head's row.
    pub head_dim: i32,
    /// Factor of the scores; already resolved, never 0.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// One dense Q for all sequences.
    pub broadcast_q: bool,
    /// The backward gives bitwise equal results from run to run.
    pub deterministic: bool,
    /// Sizes of the largest batch.
    pub limits: Limits,
}

/// Refuses a value outside of `min..=max`.
pub(crate) fn in_range(name: &str, value: i64, min: i64, max: i64) -> Result<()> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Error::invalid(name, value, format!("{min} to {max}"))) }
}

/// Refuses a head dimension that no kernel has.
pub(crate) fn check_head_dim(head_dim: i32) -> Result<()> {
    match (8..=MAX_HEAD_DIM).contains(&head_dim) && head_dim % 8 == 0 {
        true => Ok(()),
        false => Err(Error::invalid("head_dim", head_dim, "a multiple of 8 from 8 to 256")),
    }
}

impl Problem {
    /// Checks every rule that holds for all devices.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the field as the C API spells it.
    pub fn validate(&self) -> Result<()> {
        in_range("heads_q", self.heads_q.into(), 1, MAX_HEADS.into())?;
        in_range("heads_kv", self.heads_kv.into(), 1, MAX_HEADS.into())?;
        if self.heads_q % self.heads_kv != 0 {
            return Err(Error::invalid("heads_q", self.heads_q, format!("a multiple of heads_kv = {}", self.heads_kv)));
        }
        check_head_dim(self.head_dim)?;
        if !self.scale.is_finite() {
            return Err(Error::invalid("scale", self.scale, "finite (0 means 1/sqrt(head_dim))"));
        }
        if self.grad_q_dtype != self.dtype && self.grad_q_dtype != Dtype::Fp32 {
            let rule = "JFA_DTYPE_UNSPECIFIED, the plan's dtype, or JFA_DTYPE_FP32";
            return Err(Error::invalid("grad_q_dtype", format!("{:?}", self.grad_q_dtype), rule));
        }
        for (name, side) in [("window_left", self.mask.left), ("window_right", self.mask.right)] {
            if let Some(width) = side {
                in_range(name, width, 0, i32::MAX.into())?;
            }
        }
        let l = &self.limits;
        in_range("max_batch", l.batch, 0, MAX_BATCH)?;
        in_range("max_total_kv", l.total_kv, 0, MAX_ROWS)?;
        in_range("max_seqlen_q", l.seqlen_q, 0, MAX_SEQLEN)?;
        in_range("max_seqlen_kv", l.seqlen_kv, 0, MAX_SEQLEN)?;
        in_range("max_total_q", l.total_q, 0, MAX_ROWS)
    }

    /// Query heads that share one key head.
    pub fn group(&self) -> i32 {
        self.heads_q / self.heads_kv
    }

    /// Rows of O and dO for a batch: those of Q, or `batch * seqlen_q` for broadcast Q.
    pub fn rows_o(&self, batch: i64, total_q: i64) -> i64 {
        if self.broadcast_q { batch * self.limits.seqlen_q } else { total_q }
    }

    /// Floating-point operations of the forward for these sequences: 4 per visible (query, key) pair, head and
    /// element of the head dimension. The backward has 2.5 times as many.
    pub fn forward_flops(&self, sequences: &[Sequence]) -> f64 {
        let pairs: f64 = sequences.iter().map(|s| self.visible_pairs(s)).sum();
        4.0 * pairs * f64::from(self.heads_q) * f64::from(self.head_dim)
    }

    fn visible_pairs(&self, s: &Sequence) -> f64 {
        if self.mask.hides_nothing() {
            return s.len_q as f64 * s.len_kv as f64;
        }
        let keys = |i| self.mask.keys(i..i + 1, s.len_q, s.len_kv);
        (0..s.len_q).map(|i| keys(i).end - keys(i).start).sum::<i64>() as f64
    }
}

/// Where one sequence of a batch lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sequence {
    /// First row of Q; 0 for broadcast Q.
    pub begin_q: i64,
    /// First row of O and dO; `begin_q` for packed Q.
    pub begin_o: i64,
    /// First row of K and V.
    pub begin_kv: i64,
    /// Queries.
    pub len_q: i64,
    /// Keys.
    pub len_kv: i64,
}
