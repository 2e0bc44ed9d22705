//! How the backward's tiles are grouped, so that dQ is a sum in a fixed order whatever the threads do.
//!
//! A unit is a run of adjacent tiles of one key head that one worker walks in order; it has its own fp32 partial dQ.
//! The partials of a query are added up in the order of the units. Units are grouped in waves, whose partials fit the
//! workspace together.

use std::ops::Range;

use crate::problem::{Problem, Sequence};
use crate::schedule::BackwardSchedule;

/// Values of all partial dQ of a wave, unless a single one needs more.
const BUDGET: i64 = 1 << 24;
/// Key tiles of a packed sequence that share a partial dQ.
const TILES_PER_UNIT: i64 = 4;
/// Units per key head of a broadcast Q.
const MAX_CHUNKS: i64 = 64;
/// Rows of dQ that are finished at once.
const REDUCTION_ROWS: i64 = 128;

/// Tiles that one worker walks.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// Key head.
    pub head: u32,
    /// Positions in the schedule's list of entries.
    pub entries: Range<usize>,
    /// First row of its partial dQ, `[group, len_q, head_dim]`.
    pub partial: usize,
    /// (query, key) pairs.
    pub cost: u64,
}

/// Rows of dQ, and the partials whose sum they are.
#[derive(Clone, Debug)]
pub(super) struct Reduction {
    /// Query head.
    pub head: u32,
    /// Rows of dQ.
    pub rows: Range<i64>,
    /// Row of the first partial.
    pub partial: usize,
    /// Rows from one partial to the next.
    pub distance: usize,
    /// Partials; 0 for a query without keys.
    pub count: usize,
}

/// Units that run at the same time, then their sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Wave {
    /// Most costly first.
    pub units: Vec<Unit>,
    pub reductions: Vec<Reduction>,
}

/// Rows of partial dQ that the workspace must hold.
pub(super) fn partial_rows(problem: &Problem, block_n: i64) -> usize {
    let limits = &problem.limits;
    let budget = BUDGET / i64::from(problem.head_dim);
    let rows = if problem.broadcast_q {
        chunks(problem) * i64::from(problem.heads_q) * limits.seqlen_q
    } else {
        let tiles = crate::schedule::blocks(limits.seqlen_kv, block_n);
        let splits = crate::schedule::blocks(tiles, TILES_PER_UNIT).max(1);
        let all = (i64::from(problem.heads_q) * splits).saturating_mul(limits.total_q);
        budget.max(i64::from(problem.group()) * limits.seqlen_q).min(all)
    };
    rows as usize
}

/// Most units per key head of a broadcast Q.
fn chunks(problem: &Problem) -> i64 {
    let rows = i64::from(problem.heads_q) * problem.limits.seqlen_q.max(1);
    (BUDGET / i64::from(problem.head_dim) / rows).clamp(1, MAX_CHUNKS)
}

/// The waves of a batch.
pub(super) fn waves(problem: &Problem, sequences: &[Sequence], schedule: &BackwardSchedule) -> Vec<Wave> {
    let costs: Vec<u64> = schedule.entries.iter().map(|entry| cost(problem, sequences, schedule, entry)).collect();
    let mut waves = if problem.broadcast_q {
        vec![broadcast(problem, &costs)]
    } else {
        packed(problem, sequences, schedule, &costs)
    };
    for wave in &mut waves {
        wave.units.sort_by_key(|unit| std::cmp::Reverse(unit.cost));
    }
    waves
}

fn cost(problem: &Problem, sequences: &[Sequence], schedule: &BackwardSchedule, entry: &crate::schedule::Entry) -> u64 {
    let s = &sequences[entry.batch as usize];
    let begin = i64::from(entry.block) * schedule.block_n;
    let end = (begin + schedule.block_n).min(s.len_kv);
    let queries = problem.mask.queries(begin..end, s.len_q, s.len_kv);
    ((end - begin) * (queries.end - queries.start)) as u64 * problem.group() as u64
}

/// One wave: for each key head, chunks of the whole list of about equal cost.
fn broadcast(problem: &Problem, costs: &[u64]) -> Wave {
    let chunks = (chunks(problem) as usize).min(costs.len());
    let (group, rows) = (problem.group() as usize, problem.limits.seqlen_q as usize);
    let total: u64 = costs.iter().sum();
    let mut bounds = vec![0];
    let mut sum = 0u64;
    for (i, cost) in costs.iter().enumerate() {
        sum += cost;
        // In 128 bits, since a cost may pass 2^50.
        let reached = u128::from(sum) * chunks as u128 >= u128::from(total) * bounds.len() as u128;
        if reached && bounds.len() < chunks && i + 1 < costs.len() {
            bounds.push(i + 1);
        }
    }
    bounds.push(costs.len());
    let mut wave = Wave::default();
    for head in 0..problem.heads_kv as usize {
        let first = head * chunks * group * rows;
        for (i, bound) in bounds.windows(2).enumerate() {
            let entries = bound[0]..bound[1];
            let cost = costs[entries.clone()].iter().sum();
            wave.units.push(Unit { head: head as u32, entries, partial: first + i * group * rows, cost });
        }
        let count = if costs.is_empty() { 0 } else { bounds.len() - 1 };
        reductions(&mut wave, problem, head, 0..rows as i64, first, group * rows, count);
    }
    wave
}

/// Sequence by sequence, each with a number of units that depends on its length alone.
fn packed(problem: &Problem, sequences: &[Sequence], schedule: &BackwardSchedule, costs: &[u64]) -> Vec<Wave> {
    let capacity = partial_rows(problem, schedule.block_n);
    let group = problem.group() as usize;
    let mut waves = vec![Wave::default()];
    let (mut used, mut next) = (0, 0);
    for (batch, s) in sequences.iter().enumerate() {
        let begin = next;
        while schedule.entries.get(next).is_some_and(|entry| entry.batch as usize == batch) {
            next += 1;
        }
        if s.len_q == 0 {
            continue;
        }
        let (tiles, rows) = (next - begin, group * s.len_q as usize);
        let count = tiles.div_ceil(TILES_PER_UNIT as usize).min((capacity / rows).max(1));
        for head in 0..problem.heads_kv as usize {
            if used + count * rows > capacity {
                waves.push(Wave::default());
                used = 0;
            }
            let Some(wave) = waves.last_mut() else { continue };
            for i in 0..count {
                let entries = begin + i * tiles / count..begin + (i + 1) * tiles / count;
                let cost = costs[entries.clone()].iter().sum();
                wave.units.push(Unit { head: head as u32, entries, partial: used + i * rows, cost });
            }
            reductions(wave, problem, head, s.begin_q..s.begin_q + s.len_q, used, rows, count);
            used += count * rows;
        }
    }
    waves
}

fn reductions(
    wave: &mut Wave,
    problem: &Problem,
    kv_head: usize,
    rows: Range<i64>,
    partial: usize,
    distance: usize,
    count: usize,
) {
    let group = problem.group() as usize;
    for g in 0..group {
        for begin in rows.clone().step_by(REDUCTION_ROWS as usize) {
            wave.reductions.push(Reduction {
                head: (kv_head * group + g) as u32,
                rows: begin..(begin + REDUCTION_ROWS).min(rows.end),
                partial: partial + g * (rows.end - rows.start) as usize + (begin - rows.start) as usize,
                distance,
                count,
            });
        }
    }
}
