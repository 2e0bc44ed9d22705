//! Backward tiles: blocks of keys, neighbours together, dealt round robin.

use super::{Entry, Load, Tile, blocks};
use crate::problem::{Problem, Sequence};

/// The order of the backward.
///
/// The list holds the blocks of keys that at least one query sees, block innermost, so that neighbours share Q and dO.
/// Each sequence is padded to a multiple of the cluster size with sentinels, whose block lies just past its last one;
/// the list is repeated for every key head, head outermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackwardSchedule {
    /// Keys of a block.
    pub block_n: i64,
    /// Blocks that are seen, with sentinels.
    pub entries: Vec<Entry>,
    /// Blocks of keys that no query sees: their dK and dV are 0.
    pub unseen: Vec<Entry>,
    /// Key heads.
    pub heads: u32,
    /// Workers of a cluster, which take adjacent tiles.
    pub cluster: u32,
    /// Workers that get tiles; a multiple of `cluster`.
    pub workers: u32,
    counts: Vec<u32>,
}

impl BackwardSchedule {
    /// Lists the key blocks of `sequences` in blocks of `block_n` rows, for at most `workers` workers in clusters of
    /// `cluster`.
    pub fn new(problem: &Problem, sequences: &[Sequence], block_n: i64, workers: u32, cluster: u32) -> Self {
        let (mut entries, mut unseen) = (Vec::new(), Vec::new());
        let mut counts = Vec::with_capacity(sequences.len());
        for (batch, s) in sequences.iter().enumerate() {
            let count = blocks(s.len_kv, block_n);
            let begin = entries.len();
            for block in 0..count {
                let rows = block * block_n..((block + 1) * block_n).min(s.len_kv);
                let entry = Entry { batch: batch as u32, block: block as u32 };
                let seen = !problem.mask.queries(rows, s.len_q, s.len_kv).is_empty();
                if seen { entries.push(entry) } else { unseen.push(entry) }
            }
            while (entries.len() - begin) % cluster as usize != 0 {
                entries.push(Entry { batch: batch as u32, block: count as u32 });
            }
            counts.push(count as u32);
        }
        let workers = (workers / cluster * cluster).max(cluster);
        BackwardSchedule { block_n, entries, unseen, heads: problem.heads_kv as u32, cluster, workers, counts }
    }

    /// Tiles of the batch, sentinels included.
    pub fn num_tiles(&self) -> u64 {
        self.entries.len() as u64 * u64::from(self.heads)
    }

    /// The tile at `index` of the list.
    pub fn tile(&self, index: u64) -> Tile {
        let entry = self.entries[(index % self.entries.len() as u64) as usize];
        Tile { batch: entry.batch, head: (index / self.entries.len() as u64) as u32, block: entry.block }
    }

    /// Whether a tile only fills up its cluster and holds no keys.
    pub fn is_sentinel(&self, tile: Tile) -> bool {
        tile.block >= self.counts[tile.batch as usize]
    }

    /// (query, key) pairs that each worker visits.
    pub fn load(&self, problem: &Problem, sequences: &[Sequence]) -> Load {
        Load::of(
            self.workers,
            |w| self.worker(w),
            |tile| {
                let s = &sequences[tile.batch as usize];
                let row = i64::from(tile.block) * self.block_n;
                let rows = row..(row + self.block_n).min(s.len_kv).max(row);
                let queries = problem.mask.queries(rows.clone(), s.len_q, s.len_kv);
                (queries.end - queries.start) as u64 * (rows.end - rows.start) as u64
            },
        )
    }

    /// The tiles of one worker, in its order.
    pub fn worker(&self, worker: u32) -> impl Iterator<Item = Tile> + '_ {
        (u64::from(worker)..self.num_tiles()).step_by(self.workers as usize).map(|index| self.tile(index))
    }
}
