//! The portable backend: the flash algorithm over the same tile lists, on the threads of this process.

use crate::error::{Error, Result, Status};
use crate::plan::{Backward, Batch, Forward, Info, Phase, Scheduler};
use crate::problem::{IndexType, Problem, Sequence};
use crate::schedule::{BackwardSchedule, ForwardSchedule};
use crate::workspace::Carver;

mod offsets;

/// Queries of a tile.
pub const BLOCK_M: i64 = 64;
/// Keys of a tile.
pub const BLOCK_N: i64 = 128;

/// A problem on the CPU, with the tile lists of its batch.
#[derive(Debug)]
pub struct Plan {
    sequences: Vec<Sequence>,
    forward: Option<ForwardSchedule>,
    backward: Option<BackwardSchedule>,
    workers: u32,
}

impl Plan {
    /// A plan for `workers` threads, 0 for all.
    ///
    /// # Errors
    /// `OutOfMemory` if the threads cannot be started.
    pub fn new(_problem: &Problem, workers: u32) -> Result<Self> {
        let workers = if workers == 0 { rayon::current_num_threads() as u32 } else { workers };
        Ok(Plan { sequences: Vec::new(), forward: None, backward: None, workers })
    }

    /// Reads and checks the offsets and lists the tiles.
    ///
    /// # Safety
    /// The offsets of `batch` are readable host memory.
    ///
    /// # Errors
    /// `InvalidOffsets`, naming the first bad index.
    pub unsafe fn update(&mut self, problem: &Problem, batch: &Batch) -> Result<()> {
        // SAFETY: the caller's promise.
        self.sequences = unsafe { offsets::read(problem, batch) }?;
        self.forward = Some(ForwardSchedule::new(problem, &self.sequences, BLOCK_M, self.workers));
        self.backward = Some(BackwardSchedule::new(problem, &self.sequences, BLOCK_N, self.workers, 1));
        Ok(())
    }

    /// What was decided.
    pub fn info(&self, _problem: &Problem) -> Info {
        let phase = |kernel: &str, tiles| Phase {
            kernel: kernel.into(),
            workers: self.workers,
            cluster: 1,
            scheduler: Scheduler::Atomic,
            block_m: BLOCK_M,
            block_n: BLOCK_N,
            tiles,
            imbalance: 1.0,
        };
        Info {
            arch: "cpu".into(),
            forward: phase("forward", self.forward.as_ref().map_or(0, ForwardSchedule::num_tiles)),
            backward: phase("backward", self.backward.as_ref().map_or(0, BackwardSchedule::num_tiles)),
        }
    }

    /// Counts or carves the forward's workspace.
    pub fn carve_forward(&self, _problem: &Problem, _carver: &mut Carver) {}

    /// Counts or carves the backward's workspace.
    pub fn carve_backward(&self, _problem: &Problem, _carver: &mut Carver) {}

    /// O and LSE.
    ///
    /// # Safety
    /// The tensors hold the rows that the batch names.
    pub unsafe fn forward(&self, _problem: &Problem, _args: &Forward, _carver: &mut Carver) {}

    /// dQ, dK and dV.
    ///
    /// # Safety
    /// The tensors hold the rows that the batch names.
    pub unsafe fn backward(&self, _problem: &Problem, _args: &Backward, _carver: &mut Carver) {}
}
