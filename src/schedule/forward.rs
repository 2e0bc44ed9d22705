//! Forward tiles: blocks of queries, those of the longest sequences first, dealt in a zigzag or handed out.

use super::{Entry, Load, Tile, blocks, zigzag};
use crate::problem::{Problem, Sequence};

/// Upper bound of the number of cost classes, so that a counting sort over them fits one multiprocessor.
pub const MAX_CLASSES: i64 = 1024;
/// Keys of one cost class at least: entries that differ by less are not worth telling apart.
pub const MIN_CLASS_KEYS: i64 = 16;
/// Entries are short if they see at most this part of the longest sequence: they are sorted by their own keys and come
/// last, so that what is handed out at the end is small, at the price of reading that part of K and V again. Twin
/// of `kShortPart` in `kernels/plan/plan.cu`.
pub const SHORT_PART: i64 = 16;
/// What keeping every worker on its (head, block) may cost, in percent of the ideal time.
const LOSS_PERCENT: f64 = 4.0;
/// What is dealt ahead where the rest is handed out at run time, in percent of the tiles. Twin of `kStaticPercent` in
/// `kernels/sm100/forward/config.h`.
pub const STATIC_PERCENT: u64 = 50;
/// Parts that are handed out at run time, for each worker.
const PARTS_PER_WORKER: u32 = 4;

/// The order of the forward.
///
/// Entries are sorted by the keys of their sequence, descending; those of a sequence follow each other from the last
/// block on, so that what runs at the same time reads the same K and V, and with a causal mask the longest come first.
/// Only short ones are sorted by the keys that they see themselves. Each expands to `width` tiles: all heads, and for
/// broadcast Q without a mask all query blocks too, which then cost the same. Where tiles of a sequence cost the same,
/// they are dealt to lanes of `group` adjacent workers in a zigzag. With `group == width` a worker keeps its
/// (head, block) for good, so that Q stays resident while neighbours read the same K and V at the same time. The
/// workers beyond the last whole lane then share every `stride`-th entry, one (head, block) after the other.
///
/// With parts, only the longest tiles are dealt so. The rest of the list is cut into parts, of one (head, block) each,
/// which workers take one after the other when they have time. With a mask each tile is handed out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSchedule {
    /// Queries of a block.
    pub block_m: i64,
    /// Blocks that see keys, those of the longest sequences first.
    pub entries: Vec<Entry>,
    /// Blocks of queries that see no key: their O is 0 and their LSE -inf.
    pub keyless: Vec<Entry>,
    /// Query heads.
    pub heads: u32,
    /// Query blocks of an entry: all of the sequence, or 1.
    pub blocks_per_entry: u32,
    /// Who gets which tile.
    pub deal: Deal,
}

/// How tiles are dealt to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Workers that get tiles.
    pub workers: u32,
    /// Adjacent workers that move through the list together, one lane.
    pub group: u32,
    /// Every `stride`-th entry goes to the workers beyond the last lane; 0 if there are none.
    pub stride: u32,
    /// What is handed out at run time.
    pub handed_out: HandedOut,
}

/// What is not dealt, but handed out at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedOut {
    /// All tiles are dealt.
    Nothing,
    /// So many parts of the list.
    Parts(u32),
    /// All tiles, one by one, in the order of the list.
    EachTile,
}

/// Keys of one cost class for sequences of at most `seqlen_kv` keys.
pub fn class_keys(seqlen_kv: i64) -> i64 {
    (seqlen_kv / MAX_CLASSES + 1).max(MIN_CLASS_KEYS)
}

impl ForwardSchedule {
    /// Lists the query blocks of `sequences` in blocks of `block_m` rows, for at most `workers` workers, which get all of
    /// them ahead, or with a mask one by one.
    pub fn new(problem: &Problem, sequences: &[Sequence], block_m: i64, workers: u32) -> Self {
        let heads = problem.heads_q as u32;
        let blocks_per_entry = blocks_per_entry(problem, block_m);
        let class = class_keys(problem.limits.seqlen_kv);
        let few = sequences.iter().map(|s| s.len_kv).max().unwrap_or(0) / SHORT_PART;
        let mut classified: Vec<(i64, Entry)> = Vec::with_capacity(sequences.len());
        for (batch, s) in sequences.iter().enumerate() {
            let rows_per_entry = block_m * i64::from(blocks_per_entry);
            for entry in (0..blocks(s.len_q, rows_per_entry)).rev() {
                let rows = entry * rows_per_entry..((entry + 1) * rows_per_entry).min(s.len_q);
                let keys = problem.mask.keys(rows, s.len_q, s.len_kv);
                let entry = Entry { batch: batch as u32, block: entry as u32 * blocks_per_entry };
                let keys = keys.end - keys.start;
                classified.push((blocks(if keys > few { s.len_kv } else { keys }, class), entry));
            }
        }
        classified.sort_by_key(|&(class, _)| std::cmp::Reverse(class));
        let seen = classified.partition_point(|&(class, _)| class > 0);
        let strip = |part: &[(i64, Entry)]| part.iter().map(|&(_, entry)| entry).collect();
        let deal = match problem.mask.hides_nothing() {
            true => Deal::new(heads * blocks_per_entry, problem.broadcast_q, workers),
            false => Deal::each_tile(workers),
        };
        ForwardSchedule {
            block_m,
            entries: strip(&classified[..seen]),
            keyless: strip(&classified[seen..]),
            heads,
            blocks_per_entry,
            deal,
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

    /// The tile at `index` of the list; the blocks of a head are innermost, then the heads.
    pub fn tile(&self, index: u64) -> Tile {
        let entry = self.entries[(index / self.width()) as usize];
        let inner = (index % self.width()) as u32;
        Tile {
            batch: entry.batch,
            head: inner / self.blocks_per_entry,
            block: entry.block + inner % self.blocks_per_entry,
        }
    }

    /// The same tiles, dealt otherwise.
    pub fn dealt(self, deal: Deal) -> Self {
        ForwardSchedule { deal, ..self }
    }

    /// Keys that each worker visits. Parts go to whoever has least work so far, as at run time to who is ready first.
    pub fn load(&self, problem: &Problem, sequences: &[Sequence]) -> Load {
        let cost = |tile: Tile| {
            let s = &sequences[tile.batch as usize];
            let row = i64::from(tile.block) * self.block_m;
            let keys = problem.mask.keys(row..(row + self.block_m).min(s.len_q), s.len_q, s.len_kv);
            (keys.end - keys.start) as u64
        };
        let dealt = Load::of(self.deal.workers, |w| self.worker(w), cost);
        match self.deal.handed_out {
            HandedOut::Nothing => dealt,
            HandedOut::Parts(parts) => dealt.and_in_turn((0..parts).map(|part| self.part(part).map(cost).sum())),
            HandedOut::EachTile => dealt.and_in_turn((0..self.num_tiles()).map(|index| cost(self.tile(index)))),
        }
    }

    /// Rounds that are dealt ahead.
    fn rounds(&self) -> u64 {
        let Deal { workers, group, handed_out, .. } = self.deal;
        match handed_out {
            HandedOut::Nothing => self.num_tiles().div_ceil(u64::from(workers / group * group)),
            HandedOut::Parts(_) => (self.num_tiles() / u64::from(workers) * STATIC_PERCENT / 100).max(1),
            HandedOut::EachTile => 0,
        }
    }

    /// The tiles of one part, in their order.
    pub fn part(&self, part: u32) -> impl Iterator<Item = Tile> + '_ {
        let Deal { workers, group, handed_out, .. } = self.deal;
        let parts = if let HandedOut::Parts(parts) = handed_out { parts } else { 0 };
        let (width, part) = (self.width(), u64::from(part));
        let first = (self.rounds() * u64::from(workers / group * group)).min(self.num_tiles());
        let rest = self.num_tiles() - first;
        let entries = rest.div_ceil(width).div_ceil((u64::from(parts) / width).max(1));
        let offsets = (0..entries).map(move |i| (part / width * entries + i) * width + part % width);
        offsets.filter(move |&offset| offset < rest).map(move |offset| self.tile(first + offset))
    }

    /// The tiles that are dealt to one worker, in its order.
    pub fn worker(&self, worker: u32) -> Box<dyn Iterator<Item = Tile> + '_> {
        let Deal { workers, group, stride, .. } = self.deal;
        let (group, stride, width) = (u64::from(group), u64::from(stride), self.width());
        let lanes = u64::from(workers) / group;
        let shared = (self.entries.len() as u64).checked_div(stride).unwrap_or(0);
        let (lane, member) = (u64::from(worker) / group, u64::from(worker) % group);
        if lane == lanes {
            let others = u64::from(workers) % group;
            let places = member * width / others..(member + 1) * width / others;
            let entries = move |place| (0..shared).map(move |i| (i * stride + stride - 1) * width + place);
            return Box::new(places.flat_map(entries).map(|index| self.tile(index)));
        }
        let tiles = self.num_tiles() - shared * width;
        let rounds = tiles.div_ceil(lanes * group).min(self.rounds());
        let indices = (0..rounds).map(move |round| zigzag(round, lane, lanes) * group + member);
        let skip_shared = move |index: u64| match stride {
            0 => index,
            _ => index + index / width / (stride - 1) * width,
        };
        Box::new(indices.filter(move |&index| index < tiles).map(move |index| self.tile(skip_shared(index))))
    }
}

/// Query blocks of an entry: all of a sequence if they surely cost the same, else 1.
pub fn blocks_per_entry(problem: &Problem, block_m: i64) -> u32 {
    if problem.broadcast_q && problem.mask.hides_nothing() {
        blocks(problem.limits.seqlen_q, block_m).max(1) as u32
    } else {
        1
    }
}

impl Deal {
    /// For entries of `width` tiles and at most `workers` workers.
    pub fn new(width: u32, broadcast_q: bool, workers: u32) -> Self {
        let workers = workers.max(1);
        let (lanes, others) = (workers / width, workers % width);
        let alone = Deal { workers, group: 1, stride: 0, handed_out: HandedOut::Nothing };
        if !broadcast_q || lanes == 0 {
            return alone;
        }
        // Balanced if the busiest of the other workers, with `places` of its entry's tiles, ends with the lanes.
        let stride = if others == 0 { 0 } else { width.div_ceil(others) * lanes + 1 };
        let shared = if others == 0 { 0.0 } else { 1.0 / f64::from(stride) };
        let time = (1.0 - shared) / f64::from(lanes);
        let ideal = f64::from(width) / f64::from(workers);
        if (time / ideal - 1.0) * 100.0 <= LOSS_PERCENT {
            Deal { workers, group: width, stride, handed_out: HandedOut::Nothing }
        } else {
            alone
        }
    }

    /// The same where at most `tiles` tiles exist and the rest of the list can be handed out at run time: workers beyond
    /// the last whole lane then have nothing but parts. Each part is of one (head, block).
    pub fn with_parts(width: u32, broadcast_q: bool, workers: u32, tiles: u64) -> Self {
        let workers = workers.max(1);
        if tiles <= u64::from(workers) {
            return Deal { workers, group: 1, stride: 0, handed_out: HandedOut::Nothing };
        }
        let group = if broadcast_q && width <= workers { width } else { 1 };
        let parts = (workers * PARTS_PER_WORKER).div_ceil(width) * width;
        Deal { workers, group, stride: 0, handed_out: HandedOut::Parts(parts) }
    }

    /// For tiles that differ within a sequence, and `workers` workers that take one after the other.
    pub fn each_tile(workers: u32) -> Self {
        Deal { workers: workers.max(1), group: 1, stride: 0, handed_out: HandedOut::EachTile }
    }
}
