//! The forward: one tile of queries against its keys, block by block, with an online softmax.

use super::matmul::Matmul;
use super::rows::{self, Element, Rows};
use super::scores::{BLOCK_M, BLOCK_N, Scores, SharedQueries, block_rows, padded, part, scratch_stride};
use super::softmax::Step;
use super::threads::Threads;
use crate::plan::Forward;
use crate::problem::{Problem, Sequence};
use crate::schedule::{ForwardSchedule, Tile};
use crate::workspace::Carver;

/// Memory of a forward call.
pub(super) struct Memory {
    queries: SharedQueries,
    scratch: *mut u8,
}

// SAFETY: every worker has its own part of the scratch.
unsafe impl Sync for Memory {}

/// One worker's buffers.
struct Scratch {
    /// `[head_dim, scratch_stride(BLOCK_M)]`: Q, transposed and scaled.
    q: *mut f32,
    /// `[BLOCK_M or BLOCK_N, head_dim]`: converted rows of Q, K or V.
    rows: *mut f32,
    /// `[BLOCK_N, BLOCK_M]`.
    scores: *mut f32,
    /// `[BLOCK_M, head_dim]`.
    o: *mut f32,
    /// `[BLOCK_M]` each.
    max: *mut f32,
    sum: *mut f32,
    correction: *mut f32,
}

impl Scratch {
    fn carve(problem: &Problem, carver: &mut Carver) -> Self {
        let (dim, m, n) = (problem.head_dim as usize, BLOCK_M as usize, BLOCK_N as usize);
        let (row, column) = (scratch_stride(dim), scratch_stride(m));
        Scratch {
            q: carver.take(dim * column),
            rows: carver.take(row * m.max(n)),
            scores: carver.take(n * column),
            o: carver.take(m * row),
            max: carver.take(m),
            sum: carver.take(m),
            correction: carver.take(m),
        }
    }

    fn size(problem: &Problem) -> usize {
        let mut carver = Carver::counting();
        Scratch::carve(problem, &mut carver);
        carver.used()
    }
}

impl Memory {
    /// Counts or carves it.
    pub(super) fn carve(problem: &Problem, workers: usize, carver: &mut Carver) -> Self {
        let queries = SharedQueries::carve(problem, false, carver);
        Memory { queries, scratch: carver.take(workers * Scratch::size(problem)) }
    }

    fn scratch(&self, problem: &Problem, worker: usize) -> Scratch {
        Scratch::carve(problem, &mut part(self.scratch, worker, Scratch::size(problem)))
    }
}

/// One forward call.
pub(super) struct Call<'a> {
    pub problem: &'a Problem,
    pub sequences: &'a [Sequence],
    pub schedule: &'a ForwardSchedule,
    pub args: &'a Forward,
    /// Rows of packed O.
    pub total_o: i64,
    pub memory: Memory,
}

// SAFETY: tiles write disjoint rows, and everything else that is shared is only read.
unsafe impl Sync for Call<'_> {}

impl Call<'_> {
    /// Runs every tile.
    ///
    /// # Safety
    /// The tensors hold the rows that the sequences name, as elements of type `T`.
    pub(super) unsafe fn run<T: Element>(&self, threads: &Threads) {
        let (problem, memory, q) = (self.problem, &self.memory, &self.args.q);
        threads.for_each(SharedQueries::items(problem), |worker, item| {
            // SAFETY: the caller's promise.
            unsafe { memory.queries.prepare::<T>(problem, q, item, memory.scratch(problem, worker).rows) };
        });
        let tiles = self.schedule.num_tiles();
        let keyless = self.schedule.keyless.len() as u64 * self.schedule.width();
        threads.for_each((tiles + keyless) as usize, |worker, item| {
            let item = item as u64;
            let tile = if item < tiles { self.schedule.tile(item) } else { self.keyless_tile(item - tiles) };
            // SAFETY: the caller's promise.
            unsafe { self.tile::<T>(tile, &self.memory.scratch(self.problem, worker)) };
        });
    }

    fn keyless_tile(&self, index: u64) -> Tile {
        let (list, blocks) = (self.schedule, u64::from(self.schedule.blocks_per_entry));
        let (entry, inner) = (list.keyless[(index / list.width()) as usize], index % list.width());
        Tile { batch: entry.batch, head: (inner / blocks) as u32, block: entry.block + (inner % blocks) as u32 }
    }

    /// # Safety
    /// As [`Call::run`].
    unsafe fn tile<T: Element>(&self, tile: Tile, scratch: &Scratch) {
        let (problem, s) = (self.problem, &self.sequences[tile.batch as usize]);
        let dim = problem.head_dim as usize;
        let kv_head = tile.head / problem.group() as u32;
        let queries = block_rows(tile.block.into(), BLOCK_M, s.len_q);
        let count = (queries.end - queries.start) as usize;
        let (lanes, stride) = (padded(count), scratch_stride(count));
        let keys = problem.mask.keys(queries.clone(), s.len_q, s.len_kv);
        // SAFETY: the caller's promise, and the sizes of the scratch.
        unsafe {
            let q = if problem.broadcast_q {
                self.memory.queries.transposed(problem, tile.head, tile.block.into())
            } else if keys.is_empty() {
                scratch.q
            } else {
                let rows = Rows::<T>::new(&self.args.q, s.begin_q + queries.start, tile.head);
                rows.copy(count, dim, scratch.rows).transpose(count, dim, problem.scale, scratch.q);
                scratch.q
            };
            for i in 0..lanes {
                *scratch.max.add(i) = f32::NEG_INFINITY;
                *scratch.sum.add(i) = 0.0;
            }
            let k = Rows::<T>::new(&self.args.k, s.begin_kv, kv_head);
            let v = Rows::<T>::new(&self.args.v, s.begin_kv, kv_head);
            for key in keys.clone().step_by(BLOCK_N as usize) {
                let n = (keys.end - key).min(BLOCK_N) as usize;
                let first = key == keys.start;
                let rows = k.skip(key as usize).to_f32(n, dim, scratch.rows);
                Matmul {
                    m: lanes,
                    n,
                    k: dim,
                    a: q,
                    a_stride: stride,
                    b: rows.data,
                    b_stride_k: 1,
                    b_stride_n: rows.stride,
                    c: scratch.scores,
                    c_stride: stride,
                    accumulate: false,
                }
                .run();
                let block = Scores { data: scratch.scores, stride, key, keys: n, query: queries.start, queries: count };
                block.hide(problem, s, f32::NEG_INFINITY);
                Step {
                    scores: scratch.scores,
                    keys: n,
                    queries: lanes,
                    stride,
                    max: scratch.max,
                    sum: scratch.sum,
                    correction: scratch.correction,
                }
                .run();
                let o = Rows { data: scratch.o, stride: scratch_stride(dim) };
                if !first {
                    o.multiply(count, dim, scratch.correction);
                }
                let rows = v.skip(key as usize).copy(n, dim, scratch.rows);
                Matmul {
                    m: dim,
                    n: count,
                    k: n,
                    a: rows.data,
                    a_stride: rows.stride,
                    b: scratch.scores,
                    b_stride_k: stride,
                    b_stride_n: 1,
                    c: o.data,
                    c_stride: o.stride,
                    accumulate: !first,
                }
                .run();
            }
            self.finish::<T>(tile, s, scratch, queries.start, count);
        }
    }

    /// Divides by the sums and writes O and LSE.
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn finish<T: Element>(&self, tile: Tile, s: &Sequence, scratch: &Scratch, begin: i64, count: usize) {
        let (problem, dim) = (self.problem, self.problem.head_dim as usize);
        let out = Rows::<T>::new(&self.args.o, s.begin_o + begin, tile.head);
        let lse = match self.args.lse.is_null() {
            true => None,
            false => {
                let row = lse_row(problem, s, tile.batch, tile.head, self.total_o) + begin;
                Some(self.args.lse.wrapping_add(row as usize))
            }
        };
        let keys = |queries| problem.mask.keys(queries, s.len_q, s.len_kv);
        // SAFETY: the caller's promise.
        unsafe {
            if keys(begin..begin + count as i64).is_empty() {
                rows::zero(out, count, dim);
            } else {
                Rows { data: scratch.o, stride: scratch_stride(dim) }.divide(count, dim, scratch.sum, out);
            }
            for i in 0..count {
                let query = begin + i as i64;
                let keyless = keys(query..query + 1).is_empty();
                if keyless {
                    rows::zero(out.skip(i), 1, dim);
                }
                if let Some(lse) = lse {
                    let (max, sum) = (*scratch.max.add(i), *scratch.sum.add(i));
                    *lse.add(i) = if keyless { f32::NEG_INFINITY } else { max + sum.ln() };
                }
            }
        }
    }
}

/// Index of the first LSE value of a head of a sequence.
pub(super) fn lse_row(problem: &Problem, s: &Sequence, batch: u32, head: u32, total_o: i64) -> i64 {
    if problem.broadcast_q {
        (i64::from(batch) * i64::from(problem.heads_q) + i64::from(head)) * problem.limits.seqlen_q
    } else {
        i64::from(head) * total_o + s.begin_o
    }
}
