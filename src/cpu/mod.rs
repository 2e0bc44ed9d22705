//! The portable backend: the flash algorithm over the same tile lists, on the threads of this process.
//!
//! See `docs/cpu.md` for the schedule, what makes it deterministic, and measurements.

use half::{bf16, f16};

use crate::error::{Error, Result, Status};
use crate::plan::{Backward, Batch, Forward, Info, Phase, Scheduler};
use crate::problem::{Dtype, IndexType, Problem, Sequence};
use crate::schedule::{BackwardSchedule, ForwardSchedule, Load, greedy_longest_first};
use crate::workspace::Carver;
pub(crate) use combine::combine;
use scores::{BLOCK_M, BLOCK_N};
use threads::Threads;
use units::Wave;

mod backward;
mod combine;
mod forward;
mod matmul;
mod offsets;
mod rows;
mod scores;
mod softmax;
#[cfg(test)]
mod tests;
mod threads;
mod units;

/// The tile lists of one batch.
#[derive(Debug)]
struct Lists {
    sequences: Vec<Sequence>,
    forward: ForwardSchedule,
    backward: BackwardSchedule,
    waves: Vec<Wave>,
    /// Rows of packed O.
    total_o: i64,
}

/// A problem on the CPU, with the tile lists of its batch.
#[derive(Debug)]
pub struct Plan {
    threads: Threads,
    lists: Option<Lists>,
}

impl Plan {
    /// A plan for `workers` threads, 0 for all.
    ///
    /// # Errors
    /// `OutOfMemory` if the threads cannot be started.
    pub fn new(_problem: &Problem, workers: u32) -> Result<Self> {
        Ok(Plan { threads: Threads::new(workers)?, lists: None })
    }

    /// Reads and checks the offsets and lists the tiles.
    ///
    /// # Safety
    /// The offsets of `batch` are readable host memory.
    ///
    /// # Errors
    /// `InvalidOffsets`, naming the first bad index.
    pub unsafe fn update(&mut self, problem: &Problem, batch: &Batch) -> Result<()> {
        self.lists = None;
        // SAFETY: the caller's promise.
        let sequences = unsafe { offsets::read(problem, batch) }?;
        let workers = self.threads.workers() as u32;
        let forward = ForwardSchedule::new(problem, &sequences, BLOCK_M, workers);
        let backward = BackwardSchedule::new(problem, &sequences, backward::TILE_N, workers, 1);
        let waves = units::waves(problem, &sequences, &backward);
        self.lists = Some(Lists { sequences, forward, backward, waves, total_o: batch.total_q });
        Ok(())
    }

    /// What was decided.
    pub fn info(&self, problem: &Problem) -> Info {
        let workers = self.threads.workers() as u32;
        let dtype = problem.dtype.name();
        let phase = |name: &str, block_n, tiles, imbalance| Phase {
            kernel: format!("{name}_{dtype}_d{}", problem.head_dim),
            workers,
            cluster: 1,
            scheduler: Scheduler::Atomic,
            block_m: BLOCK_M,
            block_n,
            tiles,
            imbalance,
        };
        let lists = self.lists.as_ref();
        Info {
            arch: arch().into(),
            forward: phase(
                "forward",
                BLOCK_N,
                lists.map_or(0, |lists| lists.forward.num_tiles()),
                lists.map_or(1.0, |lists| lists.forward_imbalance(problem, workers)),
            ),
            backward: phase(
                "backward",
                backward::TILE_N,
                lists.map_or(0, |lists| lists.backward.num_tiles()),
                lists.map_or(1.0, |lists| lists.backward_imbalance(workers)),
            ),
        }
    }

    /// Counts or carves the forward's workspace.
    pub fn carve_forward(&self, problem: &Problem, carver: &mut Carver) {
        forward::Memory::carve(problem, self.threads.workers(), carver);
    }

    /// Counts or carves the backward's workspace.
    pub fn carve_backward(&self, problem: &Problem, carver: &mut Carver) {
        backward::Memory::carve(problem, self.threads.workers(), carver);
    }

    /// O and LSE.
    ///
    /// # Safety
    /// The tensors hold the rows that the batch names.
    pub unsafe fn forward(&self, problem: &Problem, args: &Forward, carver: &mut Carver) {
        let Some(lists) = &self.lists else { return };
        let call = forward::Call {
            problem,
            sequences: &lists.sequences,
            schedule: &lists.forward,
            args,
            total_o: lists.total_o,
            memory: forward::Memory::carve(problem, self.threads.workers(), carver),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match problem.dtype {
                Dtype::Bf16 => call.run::<bf16>(&self.threads),
                Dtype::Fp16 => call.run::<f16>(&self.threads),
                Dtype::Fp32 => call.run::<f32>(&self.threads),
            }
        }
    }

    /// dQ, dK and dV.
    ///
    /// # Safety
    /// The tensors hold the rows that the batch names.
    pub unsafe fn backward(&self, problem: &Problem, args: &Backward, carver: &mut Carver) {
        let Some(lists) = &self.lists else { return };
        let call = backward::Call {
            problem,
            sequences: &lists.sequences,
            schedule: &lists.backward,
            waves: &lists.waves,
            args,
            total_o: lists.total_o,
            memory: backward::Memory::carve(problem, self.threads.workers(), carver),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match (problem.dtype, problem.grad_q_dtype) {
                (Dtype::Bf16, Dtype::Fp32) => call.run::<bf16, f32>(&self.threads),
                (Dtype::Fp16, Dtype::Fp32) => call.run::<f16, f32>(&self.threads),
                (Dtype::Bf16, _) => call.run::<bf16, bf16>(&self.threads),
                (Dtype::Fp16, _) => call.run::<f16, f16>(&self.threads),
                (Dtype::Fp32, _) => call.run::<f32, f32>(&self.threads),
            }
        }
    }
}

impl Lists {
    /// Workers take the longest tile that is left, so that the greedy assignment is the one to expect.
    fn forward_imbalance(&self, problem: &Problem, workers: u32) -> f64 {
        let cost = |index| {
            let tile = self.forward.tile(index);
            let s = &self.sequences[tile.batch as usize];
            let queries = scores::block_rows(tile.block.into(), BLOCK_M, s.len_q);
            let keys = problem.mask.keys(queries.clone(), s.len_q, s.len_kv);
            ((queries.end - queries.start) * (keys.end - keys.start)) as u64
        };
        imbalance([greedy_longest_first((0..self.forward.num_tiles()).map(cost).collect(), workers)])
    }

    /// As above, wave by wave.
    fn backward_imbalance(&self, workers: u32) -> f64 {
        let costs = |wave: &Wave| wave.units.iter().map(|unit| unit.cost).collect();
        imbalance(self.waves.iter().map(|wave| greedy_longest_first(costs(wave), workers)))
    }
}

/// Maximum over mean, summed over loads that follow each other.
fn imbalance(loads: impl IntoIterator<Item = Load>) -> f64 {
    let add = |(max, mean): (f64, f64), load: Load| (max + load.max() as f64, mean + load.mean());
    let (max, mean) = loads.into_iter().fold((0.0, 0.0), add);
    if mean > 0.0 { max / mean } else { 1.0 }
}

/// The instruction set that is used here.
fn arch() -> &'static str {
    struct Lanes;
    impl rten_simd::SimdOp for Lanes {
        type Output = usize;
        fn eval<I: rten_simd::Isa>(self, isa: I) -> usize {
            rten_simd::ops::BitOps::len(isa.f32())
        }
    }
    match (rten_simd::SimdOp::dispatch(Lanes), cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64")) {
        (16, true, _) => "cpu/avx512",
        (8, true, _) => "cpu/avx2",
        (_, _, true) => "cpu/neon",
        _ => "cpu/generic",
    }
}
