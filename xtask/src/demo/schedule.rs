//! The forward's tiles of a batch, dealt to workers in two ways, and how evenly each spreads the work.

use jfa::problem::{Device, Dtype, IndexType, Limits, Mask, Problem, Sequence};
use jfa::schedule::{BackwardSchedule, ForwardSchedule, Load, blocks, greedy_longest_first};

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
        Deal { workers: (0..workers).map(|w| if w < schedule.workers { list(w) } else { Vec::new() }).collect() }
    }

    /// A table of max / mean for every order.
    pub fn summary(&self) -> String {
        let mut text = String::from("  (query, key) pairs per worker, max / mean\n");
        let row = |name: &str, cells: [f64; 2]| format!("  {name:<46}{:>12.3}{:>12.3}\n", cells[0], cells[1]);
        let heading = SUMMARY_WORKERS.map(|w| format!("{w} workers"));
        text += &format!("  {:<46}{:>12}{:>12}\n", "", heading[0], heading[1]);
        text += &row("forward, batch order dealt round robin", SUMMARY_WORKERS.map(|w| ratio(&self.naive(w).load())));
        text += &row("forward, jfa", SUMMARY_WORKERS.map(|w| ratio(&self.scheduled(w).load())));
        let costs: Vec<u64> = self.naive(1).workers.concat();
        let greedy = SUMMARY_WORKERS.map(|w| ratio(&greedy_longest_first(costs.clone(), w)));
        text += &row("forward, greedy longest first (yardstick)", greedy);
        text + &row("backward, jfa", SUMMARY_WORKERS.map(|w| ratio(&self.backward(w))))
    }

    fn backward(&self, workers: u32) -> Load {
        let schedule = BackwardSchedule::new(&self.problem(), &self.sequences(), BLOCK_N, workers, 1);
        Load::of(
            workers,
            |w| schedule.worker(w),
            |tile| {
                let keys = (self.lengths[tile.batch as usize] - i64::from(tile.block) * BLOCK_N).min(BLOCK_N);
                (keys * self.queries) as u64
            },
        )
    }
}

/// Load of the busiest worker over the mean.
pub fn ratio(load: &Load) -> f64 {
    if load.max() == 0 { 1.0 } else { load.max() as f64 / load.mean() }
}
