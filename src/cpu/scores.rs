//! What the forward and the backward share: sizes of blocks, and the visible part of a block of scores.

use std::ops::Range;
use std::ptr::NonNull;

use super::rows::{Element, Rows};
use crate::plan::Tensor;
use crate::problem::{Problem, Sequence};
use crate::schedule::blocks;
use crate::workspace::Carver;

/// Queries of a block.
pub(super) const BLOCK_M: i64 = 64;
/// Keys whose scores are held at once: a multiple of the twelve rows of a product's widest block.
pub(super) const BLOCK_N: i64 = 144;

/// Queries are padded to a multiple of this, the lanes of the widest vector.
pub(super) const LANES: usize = 16;

/// Columns of a block of scores with `queries` queries.
pub(super) fn padded(queries: usize) -> usize {
    queries.next_multiple_of(LANES)
}

/// Distance of two rows of scratch with `columns` values: an odd number of cache lines, so that a column of them
/// spreads over all sets of the cache.
pub(super) fn scratch_stride(columns: usize) -> usize {
    let lines = columns.div_ceil(LANES);
    (lines | 1) * LANES
}

/// The queries of block `block` of a sequence with `len` of them.
pub(super) fn block_rows(block: i64, size: i64, len: i64) -> Range<i64> {
    block * size..((block + 1) * size).min(len)
}

/// A carver of part `index` of memory that is split into parts of `size` bytes.
pub(super) fn part(memory: *mut u8, index: usize, size: usize) -> Carver {
    NonNull::new(memory.wrapping_add(index * size)).map_or_else(Carver::counting, Carver::new)
}

/// A block of scores, `[keys, stride]`, that starts at key `key` and query `query` of its sequence.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub data: *mut f32,
    pub stride: usize,
    pub key: i64,
    pub keys: usize,
    pub query: i64,
    pub queries: usize,
}

impl Scores {
    /// Sets every score that the mask hides to `value`.
    ///
    /// # Safety
    /// The block is writable.
    pub(super) unsafe fn hide(&self, problem: &Problem, s: &Sequence, value: f32) {
        let rows = self.query..self.query + self.queries as i64;
        if problem.mask.covers(rows.clone(), self.key..self.key + self.keys as i64, s.len_q, s.len_kv) {
            return;
        }
        for j in 0..self.keys {
            let key = self.key + j as i64;
            let seen = problem.mask.queries(key..key + 1, s.len_q, s.len_kv);
            let begin = (seen.start.clamp(rows.start, rows.end) - rows.start) as usize;
            let end = (seen.end.clamp(rows.start, rows.end) - rows.start) as usize;
            // SAFETY: the caller's promise.
            let row = unsafe { std::slice::from_raw_parts_mut(self.data.add(j * self.stride), self.queries) };
            row[..begin.min(end)].fill(value);
            row[end..].fill(value);
        }
    }
}

/// A broadcast Q in fp32, made once for a call since every sequence reads it.
#[derive(Clone, Copy)]
pub(super) struct SharedQueries {
    /// `[heads_q, blocks, head_dim, scratch_stride(BLOCK_M)]`, scaled.
    transposed: *mut f32,
    /// `[heads_q, seqlen_q, scratch_stride(head_dim)]`, or null.
    rows: *mut f32,
}

// SAFETY: blocks are written by one worker each, before any is read.
unsafe impl Sync for SharedQueries {}

impl SharedQueries {
    /// Takes the memory; none for packed Q. `rows` asks for the untransposed copy too.
    pub(super) fn carve(problem: &Problem, rows: bool, carver: &mut Carver) -> Self {
        let queries = if problem.broadcast_q { problem.limits.seqlen_q } else { 0 };
        let head = problem.heads_q as usize * problem.head_dim as usize;
        let transposed = carver.take(blocks(queries, BLOCK_M) as usize * scratch_stride(BLOCK_M as usize) * head);
        let stride = scratch_stride(problem.head_dim as usize);
        // Null, not an empty piece: prepare() asks.
        let rows =
            if rows { carver.take(queries as usize * problem.heads_q as usize * stride) } else { std::ptr::null_mut() };
        SharedQueries { transposed, rows }
    }

    /// Blocks to prepare.
    pub(super) fn items(problem: &Problem) -> usize {
        let queries = if problem.broadcast_q { problem.limits.seqlen_q } else { 0 };
        problem.heads_q as usize * blocks(queries, BLOCK_M) as usize
    }

    /// The scaled, transposed block.
    pub(super) fn transposed(&self, problem: &Problem, head: u32, block: i64) -> *mut f32 {
        let per_head = blocks(problem.limits.seqlen_q, BLOCK_M);
        let index = (i64::from(head) * per_head + block) as usize * problem.head_dim as usize;
        self.transposed.wrapping_add(index * scratch_stride(BLOCK_M as usize))
    }

    /// The rows of a head from `row` on.
    pub(super) fn rows(&self, problem: &Problem, head: u32, row: i64) -> Rows<f32> {
        let stride = scratch_stride(problem.head_dim as usize);
        let index = (i64::from(head) * problem.limits.seqlen_q + row) as usize * stride;
        Rows { data: self.rows.wrapping_add(index), stride }
    }

    /// Prepares one block.
    ///
    /// # Safety
    /// Q is readable, the memory carved, `scratch` holds a block; no other call has the same `item`.
    pub(super) unsafe fn prepare<T: Element>(&self, problem: &Problem, q: &Tensor, item: usize, scratch: *mut f32) {
        let per_head = blocks(problem.limits.seqlen_q, BLOCK_M) as usize;
        let (head, block) = ((item / per_head) as u32, (item % per_head) as i64);
        let range = block_rows(block, BLOCK_M, problem.limits.seqlen_q);
        let (count, dim) = ((range.end - range.start) as usize, problem.head_dim as usize);
        let scratch = if self.rows.is_null() { scratch } else { self.rows(problem, head, range.start).data };
        // SAFETY: the caller's promise.
        unsafe {
            let rows = Rows::<T>::new(q, range.start, head).copy(count, dim, scratch);
            rows.transpose(count, dim, problem.scale, self.transposed(problem, head, block));
        }
    }
}
