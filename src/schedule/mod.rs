//! In which order the tiles of a batch are computed, and by which worker.
//!
//! Schedules are plain data. A worker is whatever walks a list of tiles: a streaming multiprocessor, or a thread. The
//! same lists are built on the device by `kernels/plan`; a test compares the two.

mod backward;
mod forward;
mod load;

pub use backward::{BackwardDeal, BackwardSchedule};
pub use forward::{Deal, ForwardSchedule, HandedOut, SHORT_PART, blocks_per_entry, class_keys};
pub use load::{Load, greedy_longest_first};

/// A block of rows of one sequence, before it is spread over the heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Entry {
    /// Sequence of the batch.
    pub batch: u32,
    /// Index of the block in its sequence.
    pub block: u32,
}

/// The unit of work: one block of rows of one head of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile {
    /// Sequence of the batch.
    pub batch: u32,
    /// Query head (forward) or key head (backward).
    pub head: u32,
    /// Block of queries (forward) or of keys (backward).
    pub block: u32,
}

/// Position that `worker` takes in round `round` when `workers` positions are dealt in a zigzag: left to right in
/// even rounds, right to left in odd ones.
pub(crate) fn zigzag(round: u64, worker: u64, workers: u64) -> u64 {
    round * workers + if round.is_multiple_of(2) { worker } else { workers - 1 - worker }
}

/// Blocks of `size` rows that hold `rows` rows.
pub fn blocks(rows: i64, size: i64) -> i64 {
    (rows + size - 1) / size
}
