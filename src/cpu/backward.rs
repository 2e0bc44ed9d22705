//! The backward: one tile of keys against the queries that see it, with dK and dV held in fp32.

use super::forward::lse_row;
use super::matmul::Matmul;
use super::rows::{self, Element, Rows};
use super::scores::{BLOCK_M, BLOCK_N, Scores, SharedQueries, block_rows, padded, part, scratch_stride};
use super::softmax::Gradient;
use super::threads::Threads;
use super::units::{Reduction, Unit, Wave, partial_rows};
use crate::plan::Backward;
use crate::problem::{Problem, Sequence};
use crate::schedule::{BackwardSchedule, Entry, Tile};
use crate::workspace::Carver;

/// Keys of a tile.
pub(super) const TILE_N: i64 = 288;

/// Memory of a backward call.
pub(super) struct Memory {
    queries: SharedQueries,
    /// `[partial_rows, head_dim]`.
    partials: *mut f32,
    scratch: *mut u8,
}

// SAFETY: every worker has its own part of the scratch, every unit its own partial.
unsafe impl Sync for Memory {}

/// One worker's buffers.
struct Scratch {
    /// `[head_dim, BLOCK_M]`: Q (scaled) and dO, transposed.
    q_transposed: *mut f32,
    grad_o_transposed: *mut f32,
    /// `[BLOCK_M, head_dim]`: converted rows.
    q: *mut f32,
    o: *mut f32,
    grad_o: *mut f32,
    /// `[TILE_N, head_dim]`: converted rows.
    k: *mut f32,
    v: *mut f32,
    /// `[TILE_N, head_dim]`: sums.
    grad_k: *mut f32,
    grad_v: *mut f32,
    /// `[BLOCK_N, BLOCK_M]`: S, then P; dP, then dS.
    scores: *mut f32,
    gradients: *mut f32,
    /// `[BLOCK_M]`.
    lse: *mut f32,
    delta: *mut f32,
}

impl Scratch {
    fn carve(problem: &Problem, carver: &mut Carver) -> Self {
        let (dim, m, n) = (problem.head_dim as usize, BLOCK_M as usize, TILE_N as usize);
        let (row, column) = (scratch_stride(dim), scratch_stride(m));
        Scratch {
            q_transposed: carver.take(dim * column),
            grad_o_transposed: carver.take(dim * column),
            q: carver.take(m * row),
            o: carver.take(m * row),
            grad_o: carver.take(m * row),
            k: carver.take(n * row),
            v: carver.take(n * row),
            grad_k: carver.take(n * row),
            grad_v: carver.take(n * row),
            scores: carver.take(BLOCK_N as usize * column),
            gradients: carver.take(BLOCK_N as usize * column),
            lse: carver.take(m),
            delta: carver.take(m),
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
        let queries = SharedQueries::carve(problem, true, carver);
        let partials = carver.take(partial_rows(problem, TILE_N) * problem.head_dim as usize);
        Memory { queries, partials, scratch: carver.take(workers * Scratch::size(problem)) }
    }

    fn scratch(&self, problem: &Problem, worker: usize) -> Scratch {
        Scratch::carve(problem, &mut part(self.scratch, worker, Scratch::size(problem)))
    }

    fn partial(&self, problem: &Problem, row: usize) -> Rows<f32> {
        let dim = problem.head_dim as usize;
        Rows { data: self.partials.wrapping_add(row * dim), stride: dim }
    }
}

/// One backward call.
pub(super) struct Call<'a> {
    pub problem: &'a Problem,
    pub sequences: &'a [Sequence],
    pub schedule: &'a BackwardSchedule,
    pub waves: &'a [Wave],
    pub args: &'a Backward,
    /// Rows of packed O.
    pub total_o: i64,
    pub memory: Memory,
}

// SAFETY: units and reductions write disjoint rows, and everything else that is shared is only read.
unsafe impl Sync for Call<'_> {}

/// A tile of keys at work.
struct Keys<'a> {
    s: &'a Sequence,
    /// First key in the sequence.
    begin: i64,
    count: usize,
    k: Rows<f32>,
    v: Rows<f32>,
}

/// A block of queries at work.
struct Queries {
    /// First query in the sequence.
    begin: i64,
    count: usize,
    /// `[head_dim, padded(count)]`, scaled.
    q_transposed: *mut f32,
    q: Rows<f32>,
    grad_o: Rows<f32>,
    /// Rows of the partial dQ.
    grad_q: Rows<f32>,
}

impl Call<'_> {
    /// Runs every unit and finishes dQ; `Q` is the type of dQ.
    ///
    /// # Safety
    /// The tensors hold the rows that the sequences name, as elements of type `T` (dQ: `Q`).
    pub(super) unsafe fn run<T: Element, Q: Element>(&self, threads: &Threads) {
        let (problem, memory, q) = (self.problem, &self.memory, &self.args.q);
        threads.for_each(SharedQueries::items(problem), |worker, item| {
            let scratch = memory.scratch(problem, worker);
            // SAFETY: the caller's promise, here and below.
            unsafe { memory.queries.prepare::<T>(problem, q, item, scratch.q) };
        });
        let unseen = &self.schedule.unseen;
        threads.for_each(unseen.len(), |_, item| {
            // SAFETY: as above.
            unsafe { self.unseen::<T>(unseen[item]) };
        });
        for wave in self.waves {
            threads.for_each(wave.units.len(), |worker, item| {
                // SAFETY: as above.
                unsafe { self.unit::<T>(&wave.units[item], &memory.scratch(problem, worker)) };
            });
            threads.for_each(wave.reductions.len(), |_, item| {
                // SAFETY: as above.
                unsafe { self.reduce::<Q>(&wave.reductions[item]) };
            });
        }
    }

    /// Writes the zeros of keys that no query sees, unless they would be added.
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn unseen<T: Element>(&self, entry: Entry) {
        let s = &self.sequences[entry.batch as usize];
        let rows = block_rows(entry.block.into(), TILE_N, s.len_kv);
        let (count, dim) = ((rows.end - rows.start) as usize, self.problem.head_dim as usize);
        for head in 0..self.problem.heads_kv as u32 {
            let Backward { grad_k, grad_v, accumulate, .. } = self.args;
            for (tensor, add) in [(grad_k, accumulate.grad_k), (grad_v, accumulate.grad_v)] {
                if !add {
                    // SAFETY: the caller's promise.
                    unsafe { rows::zero(Rows::<T>::new(tensor, s.begin_kv + rows.start, head), count, dim) };
                }
            }
        }
    }

    /// # Safety
    /// As [`Call::run`].
    unsafe fn unit<T: Element>(&self, unit: &Unit, scratch: &Scratch) {
        let (problem, dim) = (self.problem, self.problem.head_dim as usize);
        let Some(first) = self.schedule.entries.get(unit.entries.start) else { return };
        // All sequences of a unit have the same queries: it has one sequence, or Q is broadcast.
        let rows = problem.group() as usize * self.sequences[first.batch as usize].len_q as usize;
        // SAFETY: the caller's promise.
        unsafe {
            rows::zero(self.memory.partial(problem, unit.partial), rows, dim);
            for entry in &self.schedule.entries[unit.entries.clone()] {
                let tile = Tile { batch: entry.batch, head: unit.head, block: entry.block };
                self.tile::<T>(tile, unit.partial, scratch);
            }
        }
    }

    /// # Safety
    /// As [`Call::run`].
    unsafe fn tile<T: Element>(&self, tile: Tile, partial: usize, scratch: &Scratch) {
        let (problem, s) = (self.problem, &self.sequences[tile.batch as usize]);
        let (dim, group) = (problem.head_dim as usize, problem.group() as u32);
        let stride = scratch_stride(dim);
        let keys = block_rows(tile.block.into(), TILE_N, s.len_kv);
        let count = (keys.end - keys.start) as usize;
        let rows = |tensor| Rows::<T>::new(tensor, s.begin_kv + keys.start, tile.head);
        let seen = problem.mask.queries(keys.clone(), s.len_q, s.len_kv);
        let (grad_k, grad_v) = (Rows { data: scratch.grad_k, stride }, Rows { data: scratch.grad_v, stride });
        // SAFETY: the caller's promise, and the sizes of the scratch.
        unsafe {
            rows::zero(grad_k, count, dim);
            rows::zero(grad_v, count, dim);
            let k = rows(&self.args.k).copy(count, dim, scratch.k);
            let v = rows(&self.args.v).to_f32(count, dim, scratch.v);
            let keys = Keys { s, begin: keys.start, count, k, v };
            for g in 0..group {
                let head = tile.head * group + g;
                for block in seen.start / BLOCK_M..crate::schedule::blocks(seen.end, BLOCK_M) {
                    let partial = partial + (i64::from(g) * s.len_q + block * BLOCK_M) as usize;
                    let queries = self.queries::<T>(tile.batch, head, block, partial, scratch);
                    self.pair(&keys, &queries, scratch);
                }
            }
            let add = self.args.accumulate;
            grad_k.store(count, dim, problem.scale, rows(&self.args.grad_k), add.grad_k);
            grad_v.store(count, dim, 1.0, rows(&self.args.grad_v), add.grad_v);
        }
    }

    /// Loads a block of queries, with dO and the row statistics.
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn queries<T: Element>(
        &self,
        batch: u32,
        head: u32,
        block: i64,
        partial: usize,
        scratch: &Scratch,
    ) -> Queries {
        let (problem, s) = (self.problem, &self.sequences[batch as usize]);
        let dim = problem.head_dim as usize;
        let range = block_rows(block, BLOCK_M, s.len_q);
        let (begin, count) = (range.start, (range.end - range.start) as usize);
        // SAFETY: the caller's promise, and the sizes of the scratch.
        unsafe {
            let (q, q_transposed) = if problem.broadcast_q {
                let shared = &self.memory.queries;
                (shared.rows(problem, head, begin), shared.transposed(problem, head, block))
            } else {
                let q = Rows::<T>::new(&self.args.q, s.begin_q + begin, head).copy(count, dim, scratch.q);
                q.transpose(count, dim, problem.scale, scratch.q_transposed);
                (q, scratch.q_transposed)
            };
            let grad_o = Rows::<T>::new(&self.args.grad_o, s.begin_o + begin, head).copy(count, dim, scratch.grad_o);
            grad_o.transpose(count, dim, 1.0, scratch.grad_o_transposed);
            let o = Rows::<T>::new(&self.args.o, s.begin_o + begin, head).to_f32(count, dim, scratch.o);
            o.dot(grad_o, count, dim, scratch.delta);
            let lse = lse_row(problem, s, batch, head, self.total_o) + begin;
            scratch.lse.copy_from_nonoverlapping(self.args.lse.wrapping_add(lse as usize), count);
            for i in count..padded(count) {
                *scratch.lse.add(i) = 0.0;
                *scratch.delta.add(i) = 0.0;
            }
            Queries { begin, count, q_transposed, q, grad_o, grad_q: self.memory.partial(problem, partial) }
        }
    }

    /// Adds what a block of queries and a tile of keys give each other.
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn pair(&self, keys: &Keys, queries: &Queries, scratch: &Scratch) {
        let (mask, s, dim) = (&self.problem.mask, keys.s, self.problem.head_dim as usize);
        let (lanes, stride) = (padded(queries.count), scratch_stride(queries.count));
        let (all, end) = (queries.begin..queries.begin + queries.count as i64, keys.begin + keys.count as i64);
        for begin in (keys.begin..end).step_by(BLOCK_N as usize) {
            // Only the keys and the queries that see each other: what the rest holds, even a NaN, must not count.
            let block = begin..(begin + BLOCK_N).min(end);
            let seen = mask.keys(all.clone(), s.len_q, s.len_kv);
            let block = seen.start.max(block.start)..seen.end.min(block.end);
            let seen = mask.queries(block.clone(), s.len_q, s.len_kv);
            let rows = seen.start.max(all.start)..seen.end.min(all.end);
            if rows.is_empty() {
                continue;
            }
            let (n, at) = ((block.end - block.start) as usize, (block.start - keys.begin) as usize);
            let (m, from) = ((rows.end - rows.start) as usize, (rows.start - queries.begin) as usize);
            let (k, v) = (keys.k.skip(at), keys.v.skip(at));
            let product = |a: Rows<f32>, b: *mut f32, b_strides: (usize, usize), c: Rows<f32>| Matmul {
                m: dim,
                n,
                k: m,
                a: a.data,
                a_stride: a.stride,
                b,
                b_stride_k: b_strides.0,
                b_stride_n: b_strides.1,
                c: c.data,
                c_stride: c.stride,
                accumulate: true,
            };
            let transposed = |data| Rows { data, stride };
            let columns = |data| Rows { data, stride: scratch_stride(dim) };
            let (scores, gradients) = (scratch.scores, scratch.gradients);
            // SAFETY: the caller's promise, and the sizes of the scratch.
            unsafe {
                let score = |a, b: Rows<f32>, c| Matmul {
                    m: lanes,
                    k: dim,
                    accumulate: false,
                    ..product(transposed(a), b.data, (1, b.stride), transposed(c))
                };
                score(queries.q_transposed, k, scores).run();
                score(scratch.grad_o_transposed, v, gradients).run();
                Gradient { scores, gradients, keys: n, queries: lanes, stride, lse: scratch.lse, delta: scratch.delta }
                    .run();
                for data in [scores, gradients] {
                    let query = queries.begin;
                    let block = Scores { data, stride, key: block.start, keys: n, query, queries: queries.count };
                    block.hide(self.problem, s, 0.0);
                }
                let (p, ds) = (scores.add(from), gradients.add(from));
                product(queries.grad_o.skip(from), p, (1, stride), columns(scratch.grad_v).skip(at)).run();
                product(queries.q.skip(from), ds, (1, stride), columns(scratch.grad_k).skip(at)).run();
                Matmul { n: m, k: n, ..product(k, ds, (stride, 1), queries.grad_q.skip(from)) }.run();
            }
        }
    }

    /// Adds up the partials of a few rows of dQ, in order, and writes or adds them.
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn reduce<Q: Element>(&self, r: &Reduction) {
        let (problem, dim) = (self.problem, self.problem.head_dim as usize);
        let count = (r.rows.end - r.rows.start) as usize;
        let out = Rows::<Q>::new(&self.args.grad_q, r.rows.start, r.head);
        let add = self.args.accumulate.grad_q;
        // SAFETY: the caller's promise; partials of different units lie apart.
        unsafe {
            if r.count == 0 {
                if !add {
                    rows::zero(out, count, dim);
                }
                return;
            }
            let sum = self.memory.partial(problem, r.partial);
            for i in 1..r.count {
                sum.add(self.memory.partial(problem, r.partial + i * r.distance), count, dim);
            }
            sum.store(count, dim, problem.scale, out, add);
        }
    }
}
