//! Where the rows of a case lie: offsets, and each tensor's place in a buffer.

use crate::case::{Case, Name, Slack};
use crate::dtype::Dtype;

/// Bytes before the first element of every tensor. Odd multiples of 16: no more aligned than a caller must be.
const FRONT: usize = 17 * 16;
/// Bytes behind the last element.
const BACK: usize = 256;

/// One sequence: rows in memory, and rows when all used ones are counted without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// First row of Q.
    pub row_q: i64,
    /// First row of O.
    pub row_o: i64,
    /// First row of K.
    pub row_kv: i64,
    /// Queries.
    pub len_q: usize,
    /// Keys.
    pub len_kv: usize,
    /// First used row of Q.
    pub at_q: usize,
    /// First used row of O.
    pub at_o: usize,
    /// First used row of K.
    pub at_kv: usize,
}

/// Offsets and sequences of a batch.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// `q_offsets`; empty for broadcast Q.
    pub q_offsets: Vec<i64>,
    /// `kv_offsets`.
    pub kv_offsets: Vec<i64>,
    /// `kv_lengths`, if the layout needs them.
    pub kv_lengths: Option<Vec<i64>>,
    /// Rows of Q.
    pub total_q: i64,
    /// Rows of O.
    pub total_o: i64,
    /// Rows of K.
    pub total_kv: i64,
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// Used rows of Q, O and K.
    pub used: [usize; 3],
}

impl Geometry {
    /// Lays out the batch of `case`.
    pub fn new(case: &Case) -> Self {
        let layout = &case.layout;
        let (mut row_q, mut row_kv) = layout.lead;
        let (mut q_offsets, mut kv_offsets) = (vec![row_q], vec![row_kv]);
        let mut sequences = Vec::new();
        let mut used = [0; 3];
        for b in 0..case.lengths.len() {
            let (len_q, len_kv) = case.length(b);
            let [at_q, at_o, at_kv] = used;
            let (row_o, at_q) = match case.broadcast {
                Some(seqlen) => ((b * seqlen) as i64, 0),
                None => (row_q, at_q),
            };
            let first_q = if case.broadcast.is_some() { 0 } else { row_q };
            sequences.push(Sequence { row_q: first_q, row_o, row_kv, len_q, len_kv, at_q, at_o, at_kv });
            row_q += len_q as i64;
            row_kv += len_kv as i64
                + match layout.slack {
                    Slack::None => 0,
                    Slack::UpTo(most) => (b as i64 * 7 + 3) % (most + 1),
                    Slack::First(rows) => {
                        if b == 0 {
                            rows
                        } else {
                            0
                        }
                    }
                };
            q_offsets.push(row_q);
            kv_offsets.push(row_kv);
            used = [at_q + len_q, at_o + len_q, at_kv + len_kv];
        }
        let kv_lengths = (layout.slack != Slack::None).then(|| sequences.iter().map(|s| s.len_kv as i64).collect());
        let (mut total_q, total_kv) = (row_q + layout.tail.0, row_kv + layout.tail.1);
        let mut total_o = total_q;
        if let Some(seqlen) = case.broadcast {
            q_offsets.clear();
            (total_q, total_o) = (seqlen as i64, (case.lengths.len() * seqlen) as i64);
            used[0] = seqlen;
        }
        Geometry { q_offsets, kv_offsets, kv_lengths, total_q, total_o, total_kv, sequences, used }
    }

    /// Used rows of a tensor, in order, as rows in memory.
    pub fn rows(&self, name: Name) -> Vec<i64> {
        match name {
            Name::Q | Name::GradQ if self.q_offsets.is_empty() => (0..self.total_q).collect(),
            Name::Q | Name::GradQ => spans(self.sequences.iter().map(|s| (s.row_q, s.len_q))),
            Name::O | Name::GradO => spans(self.sequences.iter().map(|s| (s.row_o, s.len_q))),
            Name::K | Name::V | Name::GradK | Name::GradV => spans(self.sequences.iter().map(|s| (s.row_kv, s.len_kv))),
        }
    }

    /// Rows of a tensor.
    pub fn total(&self, name: Name) -> i64 {
        match name {
            Name::Q | Name::GradQ => self.total_q,
            Name::O | Name::GradO => self.total_o,
            Name::K | Name::V | Name::GradK | Name::GradV => self.total_kv,
        }
    }

    /// Index into the LSE of a query of a sequence.
    pub fn lse_index(&self, case: &Case, b: usize, head: usize, query: usize) -> usize {
        match case.broadcast {
            Some(seqlen) => (b * case.heads_q + head) * seqlen + query,
            None => head * self.total_q as usize + self.sequences[b].row_q as usize + query,
        }
    }
}

fn spans(ranges: impl Iterator<Item = (i64, usize)>) -> Vec<i64> {
    ranges.flat_map(|(begin, len)| begin..begin + len as i64).collect()
}

/// The place of a tensor in a buffer.
#[derive(Clone, Debug)]
pub struct View {
    /// Which tensor.
    pub name: Name,
    /// Its type.
    pub dtype: Dtype,
    /// Heads.
    pub heads: usize,
    /// Elements of a head's row.
    pub dim: usize,
    /// Buffer that holds it.
    pub buffer: usize,
    /// First byte in the buffer.
    pub start: usize,
    /// Elements from row to row.
    pub row_stride: i64,
    /// Elements from head to head.
    pub head_stride: i64,
    /// Strides as they are passed.
    pub passed: (i64, i64),
    /// Whether it has no rows and is passed as null.
    pub null: bool,
    /// Used rows.
    pub rows: Vec<i64>,
}

impl View {
    /// Byte of the first element of a head's row.
    pub fn offset(&self, row: i64, head: usize) -> usize {
        self.start + ((row * self.row_stride + head as i64 * self.head_stride) as usize) * self.dtype.size()
    }

    /// Bytes of one head's row.
    pub fn piece(&self) -> usize {
        self.dim * self.dtype.size()
    }

    /// Offsets of all used pieces, rows outermost.
    pub fn pieces(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().flat_map(move |&row| (0..self.heads).map(move |head| self.offset(row, head)))
    }
}

/// Places the eight tensors; returns their views and the bytes of each buffer.
pub fn place(case: &Case, geometry: &Geometry) -> (Vec<View>, Vec<usize>) {
    let layout = &case.layout;
    let (mut views, mut buffers): (Vec<View>, Vec<usize>) = (Vec::new(), Vec::new());
    for name in [Name::Q, Name::K, Name::V, Name::O, Name::GradO, Name::GradQ, Name::GradK, Name::GradV] {
        let key_side = matches!(name, Name::K | Name::V | Name::GradK | Name::GradV);
        let heads = if key_side { case.heads_kv } else { case.heads_q };
        let dtype = if name == Name::GradQ { case.grad_q_dtype() } else { case.dtype };
        let (dim, rows) = (case.head_dim as i64, geometry.total(name));
        let fused = key_side && layout.fused_kv;
        let (mut row_stride, head_stride) = match layout.heads_first {
            true => (dim + layout.padding, rows.max(1) * (dim + layout.padding)),
            false => (heads as i64 * dim * if fused { 2 } else { 1 } + layout.padding, dim),
        };
        let forced = if key_side { layout.row_strides.1 } else { layout.row_strides.0 };
        row_stride = forced.unwrap_or(row_stride);
        // Where V begins when it shares K's buffer.
        let half = if layout.heads_first { heads as i64 * head_stride } else { heads as i64 * dim } as usize;
        let joins = fused && matches!(name, Name::V | Name::GradV);
        let (buffer, start) = match joins {
            true => (buffers.len() - 1, FRONT + half * dtype.size()),
            false => (buffers.len(), FRONT),
        };
        if !joins {
            let last = ((rows - 1).max(0) * row_stride + (heads as i64 - 1) * head_stride + dim) as usize;
            let elements = last + if fused { half } else { 0 };
            buffers.push(FRONT + elements * dtype.size() + BACK);
        }
        let mut passed = if layout.default_strides { (0, 0) } else { (row_stride, head_stride) };
        if layout.stray_strides {
            passed.0 = if rows == 1 { 3 } else { passed.0 };
            passed.1 = if heads == 1 { 3 } else { passed.1 };
        }
        let null = rows == 0 && layout.null_if_empty;
        let (heads, dim, rows) = (heads, case.head_dim, geometry.rows(name));
        views.push(View { name, dtype, heads, dim, buffer, start, row_stride, head_stride, passed, null, rows });
    }
    (views, buffers)
}
