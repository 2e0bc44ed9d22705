//! The forward's tiles of a batch, dealt to workers in two ways, and how evenly each spreads the work.

use jfa::problem::{Device, Dtype, IndexType, Limits, Mask, Problem, Sequence};
use jfa::schedule::{BackwardSchedule, ForwardSchedule, Load, Tile, blocks, greedy_longest_first};

/// Queries of a forward tile, as on a GPU.
const BLOCK_M: i64 = 128;
/// Keys of a backward tile.
const BLOCK_N: i64 = 128;
/// Workers that the summary shows: multiprocessors of an H200 and of a B200.
const SUMMARY_WORKERS: [u32; 2] = [132, 148];

/// A batch of broadcast-Q attention: its key lengths and the shape of Q.
pub struct Batch {
    /// Keys of each sequence.
    pub lengths: Vec<i64>,
    /// Rows of the dense Q.
    pub queries: i64,
    /// Heads.
    pub heads: i32,
}

/// What each worker gets: the (query, key) pairs of its tiles, in its order.
pub struct Deal {
    /// One list a worker.
    pub workers: Vec<Vec<u64>>,
}

impl Deal {
    /// Sum of each worker's tiles.
    pub fn load(&self) -> Load {
        Load(self.workers.iter().map(|tiles| tiles.iter().sum()).collect())
    }

    /// Largest tile.
    pub fn largest(&self) -> u64 {
        self.workers.iter().flatten().copied().max().unwrap_or(0)
    }
}

impl Batch {
    fn problem(&self) -> Problem {
        Problem {
            device: Device::Cpu,
            dtype: Dtype::Bf16,
            grad_q_dtype: Dtype::Bf16,
            index_type: IndexType::Int32,
            heads_q: self.heads,
            heads_kv: self.heads,
            head_dim: 64,
            scale: 0.125,
            mask: Mask::NONE,
            broadcast_q: true,
            deterministic: false,
            limits: Limits {
                batch: self.lengths.len() as i64,
                total_q: 0,
                total_kv: self.lengths.iter().sum(),
                seqlen_q: self.queries,
                seqlen_kv: self.lengths.iter().copied().max().unwrap_or(0),
            },
        }
    }

    fn sequences(&self) -> Vec<Sequence> {
        let mut begin_kv = 0;
        let sequence = |(b, &len_kv): (usize, &i64)| {
            let s = Sequence { begin_q: 0, begin_o: b as i64 * self.queries, begin_kv, len_q: self.queries, len_kv };
            begin_kv += len_kv;
            s
        };
        self.lengths.iter().enumerate().map(sequence).collect()
    }

    /// (query, key) pairs of one block of queries of sequence `batch`.
    fn pairs(&self, batch: usize, block: i64) -> u64 {
        let rows = (self.queries - block * BLOCK_M).min(BLOCK_M);
        (rows * self.lengths[batch]) as u64
    }

    /// Tiles in the order of the batch (the blocks of a head innermost, then the heads), dealt round robin.
    pub fn naive(&self, workers: u32) -> Deal {
        let mut lists = vec![Vec::new(); workers as usize];
        let blocks = blocks(self.queries, BLOCK_M);
        let tiles = (0..self.lengths.len())
            .flat_map(|b| (0..self.heads).flat_map(move |_| (0..blocks).map(move |block| (b, block))));
        for (index, (b, block)) in tiles.filter(|&(b, _)| self.lengths[b] > 0).enumerate() {
            lists[index % workers as usize].push(self.pairs(b, block));
        }
        Deal { workers: lists }
    }

    /// The library's schedule.
    pub fn scheduled(&self, workers: u32) -> Deal {
        let schedule = ForwardSchedule::new(&self.problem(), &self.sequences(), BLOCK_M, workers);
        let list = |worker| {
            let tiles = schedule.worker(worker);
            tiles.map(|tile| self.pairs(tile.batch as usize, tile.block.into())).collect()
        };
        // Workers that the schedule leaves idle are workers all the same.
        Deal { workers: (0..workers).map(|w| if w < schedule.deal.workers { list(w) } else { Vec::new() }).collect() }
    }

    /// Every (batch, head, block) of a grid padded to the longest sequence, dealt round robin: the keys of each.
    fn backward_grid(&self, workers: u32) -> Vec<Vec<i64>> {
        let mut lists = vec![Vec::new(); workers as usize];
        let blocks = blocks(self.lengths.iter().copied().max().unwrap_or(0), BLOCK_N);
        let tiles = self.lengths.iter().flat_map(|&len| (0..self.heads).map(move |_| len));
        let tiles = tiles.flat_map(|len| (0..blocks).map(move |block| (len - block * BLOCK_N).clamp(0, BLOCK_N)));
        for (index, keys) in tiles.enumerate() {
            lists[index % workers as usize].push(keys);
        }
        lists
    }

    /// The library's backward: the keys of each worker's tiles.
    fn backward(&self, workers: u32) -> Vec<Vec<i64>> {
        let schedule = BackwardSchedule::new(&self.problem(), &self.sequences(), BLOCK_N, workers, 1);
        let keys = |tile: Tile| (self.lengths[tile.batch as usize] - i64::from(tile.block) * BLOCK_N).clamp(0, BLOCK_N);
        (0..schedule.workers).map(|w| schedule.worker(w).map(keys).collect()).collect()
    }

    /// Name, tiles, and max / mean of the load for every order and each of [`SUMMARY_WORKERS`].
    fn orders(&self) -> Vec<(&'static str, usize, [f64; 2])> {
        let costs = self.naive(1).workers.concat();
        let forward = costs.len();
        let (grid, listed) = (self.backward_grid(1).concat().len(), self.backward(1).concat().len());
        let pairs = |lists: Vec<Vec<i64>>| {
            Load(lists.iter().map(|keys| (keys.iter().sum::<i64>() * self.queries) as u64).collect())
        };
        let count = |lists: Vec<Vec<i64>>| Load(lists.iter().map(|keys| keys.len() as u64).collect());
        let order = |name, tiles, load: &dyn Fn(u32) -> Load| (name, tiles, SUMMARY_WORKERS.map(|w| ratio(&load(w))));
        vec![
            order("forward, batch order, in pairs", forward, &|w| self.naive(w).load()),
            order("forward, jfa, in pairs", forward, &|w| self.scheduled(w).load()),
            order("forward, greedy longest first, in pairs", forward, &|w| greedy_longest_first(costs.clone(), w)),
            order("backward, padded grid, in pairs", grid, &|w| pairs(self.backward_grid(w))),
            order("backward, jfa, in pairs", listed, &|w| pairs(self.backward(w))),
            order("backward, jfa, in tiles", listed, &|w| count(self.backward(w))),
        ]
    }

    /// The orders as a table.
    pub fn summary(&self) -> String {
        let [first, second] = SUMMARY_WORKERS.map(|w| format!("{w} workers"));
        let mut text = format!(
            "Load of the busiest worker over the mean (tiles of {BLOCK_M} queries forward, {BLOCK_N} keys backward)\n\n\
             {:<50}{:>9}{first:>14}{second:>14}\n",
            "", "tiles",
        );
        for (name, tiles, [a, b]) in self.orders() {
            text += &format!("  {name:<48}{tiles:>9}{a:>14.3}{b:>14.3}\n");
        }
        text
    }
}

/// Load of the busiest worker over the mean.
pub fn ratio(load: &Load) -> f64 {
    if load.max() == 0 { 1.0 } else { load.max() as f64 / load.mean() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Batch;

    #[test]
    fn the_scheduling_document_has_the_present_figures() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
        let lengths = read(crate::demo::LENGTHS).lines().map(|line| line.parse().expect("a length")).collect();
        let document = read("docs/scheduling.md");
        for (name, tiles, [a, b]) in (Batch { lengths, queries: 64, heads: 4 }).orders() {
            let row = format!("| {name} | {tiles} | {a:.3} | {b:.3} |");
            assert!(document.contains(&row), "docs/scheduling.md lacks the row\n{row}");
        }
    }
}
