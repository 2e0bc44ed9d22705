//! Forward tiles: blocks of queries, longest first, dealt in a zigzag.

use super::{Entry, Load, Tile, blocks, zigzag};
use crate::problem::{Problem, Sequence};

/// Upper bound of the number of cost classes, so that a counting sort over them fits one multiprocessor.
pub const MAX_CLASSES: i64 = 1024;
/// Keys of one cost class at least: entries that differ by less are not worth telling apart.
pub const MIN_CLASS_KEYS: i64 = 16;
/// Share of the workers, in percent, that may stay idle to keep the others on one (head, block) each.
const IDLE_PERCENT: u64 = 4;

/// The order of the forward.
///
/// Entries are sorted by the keys they visit, descending. Each expands to `width` tiles: all heads, and for broadcast
/// Q without a mask all query blocks too, which then cost the same. Tiles are dealt to lanes of `group` adjacent
/// workers in a zigzag. With `group == width` a worker keeps its (head, block) for good, so that Q stays resident
/// while neighbours read the same K and V at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSchedule {
    /// Queries of a block.
    pub block_m: i64,
    /// Blocks that see keys, longest first.
    pub entries: Vec<Entry>,
    /// Blocks of queries that see no key: their O is 0 and their LSE -inf.
    pub keyless: Vec<Entry>,
    /// Query heads.
    pub heads: u32,
    /// Query blocks of an entry: all of the sequence, or 1.
    pub blocks_per_entry: u32,
    /// Workers that get tiles.
    pub workers: u32,
    /// Adjacent workers that move through the list together.
    pub group: u32,
}

/// Keys of one cost class for sequences of at most `seqlen_kv` keys.
pub fn class_keys(seqlen_kv: i64) -> i64 {
    (seqlen_kv / MAX_CLASSES + 1).max(MIN_CLASS_KEYS)
}

impl ForwardSchedule {
    /// Lists the query blocks of `sequences` in blocks of `block_m` rows, for at most `workers` workers.
    pub fn new(problem: &Problem, sequences: &[Sequence], block_m: i64, workers: u32) -> Self {
        let heads = problem.heads_q as u32;
        let blocks_per_entry = blocks_per_entry(problem, block_m);
        let class = class_keys(problem.limits.seqlen_kv);
        let mut classified: Vec<(i64, Entry)> = Vec::with_capacity(sequences.len());
        for (batch, s) in sequences.iter().enumerate() {
            for block in (0..blocks(s.len_q, block_m)).step_by(blocks_per_entry as usize) {
                let rows = block * block_m..((block + i64::from(blocks_per_entry)) * block_m).min(s.len_q);
                let keys = problem.mask.keys(rows, s.len_q, s.len_kv);
                let entry = Entry { batch: batch as u32, block: block as u32 };
                classified.push((blocks(keys.end - keys.start, class), entry));
            }
        }
        classified.sort_by_key(|&(class, _)| std::cmp::Reverse(class));
        let seen = classified.partition_point(|&(class, _)| class > 0);
        let strip = |part: &[(i64, Entry)]| part.iter().map(|&(_, entry)| entry).collect();
        let (workers, group) = deal(u64::from(heads) * u64::from(blocks_per_entry), problem.broadcast_q, workers);
        ForwardSchedule {
            block_m,
            entries: strip(&classified[..seen]),
            keyless: strip(&classified[seen..]),
            heads,
            blocks_per_entry,
            workers,
            group,
        }
    }

    /// Tiles of one entry.
    pub fn width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.blocks_per_entry)
    }

    /// Tiles of the batch.
    pub fn num_tiles(&self) -> u64 {
        self.entries.len() as u64 * self.width()
    }

    /// The tile at `index` of the list, longest first; the blocks of a head are innermost, then the heads.
    pub fn tile(&self, index: u64) -> Tile {
        let entry = self.entries[(index / self.width()) as usize];
        let inner = (index % self.width()) as u32;
        Tile {
            batch: entry.batch,
            head: inner / self.blocks_per_entry,
            block: entry.block + inner % self.blocks_per_entry,
        }
    }

    /// Keys that each worker visits.
    pub fn load(&self, problem: &Problem, sequences: &[Sequence]) -> Load {
        Load::of(
            self.workers,
            |w| self.worker(w),
            |tile| {
                let s = &sequences[tile.batch as usize];
                let row = i64::from(tile.block) * self.block_m;
                let keys = problem.mask.keys(row..(row + self.block_m).min(s.len_q), s.len_q, s.len_kv);
                (keys.end - keys.start) as u64
            },
        )
    }

    /// The tiles of one worker, in its order.
    pub fn worker(&self, worker: u32) -> impl Iterator<Item = Tile> + '_ {
        let group = u64::from(self.group);
        let lanes = u64::from(self.workers) / group;
        let (lane, member) = (u64::from(worker) / group, u64::from(worker) % group);
        (0..)
            .map(move |round| (round, zigzag(round, lane, lanes) * group + member))
            .take_while(move |&(round, _)| round * lanes * group < self.num_tiles())
            .filter(|&(_, index)| index < self.num_tiles())
            .map(|(_, index)| self.tile(index))
    }
}

/// Query blocks of an entry: all of a sequence if they surely cost the same, else 1.
pub fn blocks_per_entry(problem: &Problem, block_m: i64) -> u32 {
    let unmasked = problem.mask.left.is_none() && problem.mask.right.is_none();
    if problem.broadcast_q && unmasked { blocks(problem.limits.seqlen_q, block_m).max(1) as u32 } else { 1 }
}

/// How many workers get tiles, and how many of them move together, for entries of `width` tiles.
pub fn deal(width: u64, broadcast_q: bool, workers: u32) -> (u32, u32) {
    let workers = workers.max(1);
    let idle = u64::from(workers) % width;
    if broadcast_q && width <= u64::from(workers) && idle * 100 <= IDLE_PERCENT * u64::from(workers) {
        (workers - idle as u32, width as u32)
    } else {
        (workers, 1)
    }
}
