//! Backward tiles: blocks of keys, neighbours together, handed out or dealt round robin.

use super::{Entry, Load, Tile, blocks};
use crate::problem::{Problem, Sequence};

/// Who gets which tile of the backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardDeal {
    /// Tiles one by one to all workers.
    RoundRobin,
    /// Tiles one by one, each to the worker that is free first.
    HandedOut,
    /// Each key head to `lanes` workers, one by one, heads side by side; a worker that gets several (lane, head) ends
    /// one before the next. `chain` adjacent lanes add to the same partial sum of dQ, one after the other.
    Lanes {
        /// Workers of a head.
        lanes: u32,
        /// Divides `lanes`.
        chain: u32,
    },
    /// Each key head to this many workers in contiguous ranges of equal length, heads side by side.
    Ranges(u32),
}

/// The order of the backward.
///
/// The list holds the blocks of keys that at least one query sees, block innermost, so that neighbours share Q and dO.
/// Each sequence is padded to a multiple of the cluster size with sentinels, whose block lies just past its last one.
/// Each entry stands for all key heads, side by side: their rows of K and V lie together in memory.
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
    /// Who gets which tile.
    pub deal: BackwardDeal,
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
        let heads = problem.heads_kv as u32;
        BackwardSchedule { block_n, entries, unseen, heads, cluster, workers, deal: BackwardDeal::RoundRobin, counts }
    }

    /// The same tiles, dealt otherwise.
    pub fn dealt(self, deal: BackwardDeal) -> Self {
        BackwardSchedule { deal, ..self }
    }

    /// Tiles of the batch, sentinels included.
    pub fn num_tiles(&self) -> u64 {
        self.entries.len() as u64 * u64::from(self.heads)
    }

    /// The tile at `index` of the list: the entries of a cluster, then its heads.
    pub fn tile(&self, index: u64) -> Tile {
        let (heads, cluster) = (u64::from(self.heads), u64::from(self.cluster));
        let (group, head) = (index / cluster / heads, index / cluster % heads);
        let entry = self.entries[(group * cluster + index % cluster) as usize];
        Tile { batch: entry.batch, head: head as u32, block: entry.block }
    }

    /// Whether a tile only fills up its cluster and holds no keys.
    pub fn is_sentinel(&self, tile: Tile) -> bool {
        tile.block >= self.counts[tile.batch as usize]
    }

    /// (query, key) pairs that each worker visits; if tiles are handed out, as it would be if they took as long as pairs.
    pub fn load(&self, problem: &Problem, sequences: &[Sequence]) -> Load {
        let cost = |tile: Tile| {
            let s = &sequences[tile.batch as usize];
            let row = i64::from(tile.block) * self.block_n;
            let rows = row..(row + self.block_n).min(s.len_kv).max(row);
            let queries = problem.mask.queries(rows.clone(), s.len_q, s.len_kv);
            (queries.end - queries.start) as u64 * (rows.end - rows.start) as u64
        };
        if self.deal == BackwardDeal::HandedOut {
            let cluster = u64::from(self.cluster);
            let places = 0..self.num_tiles() / cluster;
            let cost = |place| (0..cluster).map(|rank| cost(self.tile(place * cluster + rank))).sum();
            return Load(vec![0; (self.workers / self.cluster) as usize]).and_in_turn(places.map(cost));
        }
        Load::of(self.workers, |w| self.worker(w), cost)
    }

    /// The tiles of one worker, in its order; if they are handed out, as if all took equally long.
    pub fn worker(&self, worker: u32) -> Box<dyn Iterator<Item = Tile> + '_> {
        let (entries, heads) = (self.entries.len() as u64, u64::from(self.heads));
        let (worker, workers, cluster) = (u64::from(worker), self.workers as usize, u64::from(self.cluster));
        let tiles = move |head: u64, indices: Box<dyn Iterator<Item = u64>>| {
            indices.map(move |entry| self.tile((entry / cluster * heads + head) * cluster + entry % cluster))
        };
        match self.deal {
            BackwardDeal::RoundRobin | BackwardDeal::HandedOut => {
                Box::new((worker..self.num_tiles()).step_by(workers).map(|index| self.tile(index)))
            }
            BackwardDeal::Lanes { lanes, .. } => {
                let slots = (worker..heads * u64::from(lanes)).step_by(workers);
                Box::new(slots.flat_map(move |slot| {
                    tiles(slot % heads, Box::new((slot / heads..entries).step_by(lanes as usize)))
                }))
            }
            BackwardDeal::Ranges(lanes) => {
                let (lane, lanes) = (worker / heads, u64::from(lanes));
                let range = entries * lane / lanes..entries * (lane + 1) / lanes;
                Box::new(tiles(worker % heads, Box::new(range)))
            }
        }
    }
}
