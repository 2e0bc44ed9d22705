//! The CUDA backend: a device-side planner and the kernels of `kernels/`.

mod backward;
mod combine;
mod driver;
mod forward;
mod image;
mod params;
mod sm100;
mod sm100_backward;
mod sm90;
mod tensor_map;

use std::ffi::c_void;

pub(crate) use combine::combine;
use driver::{Buffer, Gpu, Kernel, Launch};
use image::Architecture;
use params::{Mask, PlanParams, UNBOUNDED};
pub use params::{PlanState, Sequence};

use crate::error::{Error, Result, Status};
use crate::plan::{Batch, Extent, Info, Phase};
use crate::problem::{Dtype, IndexType, Problem};
use crate::schedule::{self, Deal, Entry, class_keys};

/// Threads and shared memory of the planner; see `kernels/plan/plan.cu`.
const PLANNER_THREADS: u32 = 1024;
const PLANNER_SHARED_BYTES: u32 = (32 + 1) * 1025 * 4 + 3 * 32 * 4 + 2 * 4 + 8 + 8;
/// CTAs of the planner's cluster for batches of more sequences than one CTA has threads.
const PLANNER_CLUSTER: u32 = 8;

/// A problem on a GPU, with the device memory that holds its tile lists.
#[derive(Debug)]
pub struct Plan {
    gpu: Gpu,
    architecture: Architecture,
    planner: Kernel,
    planner_cluster: u32,
    forward: forward::Forward,
    backward: sm90::Backward,
    state: Buffer,
    sequences: Buffer,
    forward_entries: Buffer,
    backward_entries: Buffer,
    unseen_entries: Buffer,
    deal: Deal,
    blocks_per_entry: u32,
    multiprocessors: u32,
}

impl Plan {
    /// A plan on device `ordinal` for `workers` multiprocessors, 0 for all.
    ///
    /// # Errors
    /// `NoDriver`, `NoDevice`, `OutOfMemory`, `Cuda`, or `Unsupported` for an architecture or size without kernels.
    pub fn new(problem: &Problem, ordinal: u32, workers: u32) -> Result<Self> {
        let (gpu, architecture) = open(ordinal)?;
        let _guard = gpu.enter()?;
        let planner = Kernel::load(&gpu, "plan", "jfa_plan_update_kernel", PLANNER_THREADS, PLANNER_SHARED_BYTES)?;
        let forward = match architecture {
            Architecture::Sm90 => sm90::forward(&gpu, problem)?,
            Architecture::Sm100 => sm100::forward(&gpu, problem)?,
        };
        check_limits(problem, forward.block_m)?;
        let multiprocessors = if workers == 0 { gpu.multiprocessors } else { workers.min(gpu.multiprocessors) };
        let backward = match architecture {
            Architecture::Sm90 => sm90::backward(&gpu, problem, multiprocessors)?,
            Architecture::Sm100 => sm100_backward::backward(&gpu, problem, multiprocessors)?,
        };
        let limits = &problem.limits;
        let blocks_per_entry = schedule::blocks_per_entry(problem, forward.block_m);
        let most_entries =
            forward_entries_at_most(problem, limits.total_q, limits.batch, forward.block_m, blocks_per_entry);
        let (packs, blocks) = forward.tile_shape(problem);
        let width = packs * blocks;
        let deal = if forward::is_masked(problem) {
            Deal::each_tile(multiprocessors)
        } else if forward.takes_parts {
            Deal::with_parts(width, problem.broadcast_q, multiprocessors, most_entries as u64 * u64::from(width))
        } else {
            Deal::new(width, problem.broadcast_q, multiprocessors * forward.ctas)
        };
        let entries = |count: i64| Buffer::new(gpu, count as usize * size_of::<Entry>());
        let key_blocks = backward.entries_at_most(limits.total_kv, limits.batch);
        Ok(Plan {
            planner,
            planner_cluster: if limits.batch <= PLANNER_THREADS.into() { 1 } else { PLANNER_CLUSTER },
            forward,
            backward,
            state: Buffer::new(gpu, size_of::<PlanState>())?,
            sequences: Buffer::new(gpu, limits.batch as usize * size_of::<Sequence>())?,
            forward_entries: entries(most_entries)?,
            backward_entries: entries(key_blocks)?,
            unseen_entries: entries(key_blocks)?,
            deal,
            blocks_per_entry,
            multiprocessors,
            gpu,
            architecture,
        })
    }

    /// Enqueues the planner.
    ///
    /// # Safety
    /// The offsets of `batch` are device memory of the sizes that it names, and `stream` is a stream of this device.
    ///
    /// # Errors
    /// `InvalidArgument` for host memory, `Cuda`.
    pub unsafe fn update(&mut self, problem: &Problem, batch: &Batch, stream: *mut c_void) -> Result<()> {
        let _guard = self.gpu.enter()?;
        self.gpu.check_pointer("q_offsets", batch.q_offsets)?;
        self.gpu.check_pointer("kv_offsets", batch.kv_offsets)?;
        self.gpu.check_pointer("kv_lengths", batch.kv_lengths)?;
        let params = PlanParams {
            q_offsets: batch.q_offsets,
            kv_offsets: batch.kv_offsets,
            kv_lengths: batch.kv_lengths,
            wide: (problem.index_type == IndexType::Int64).into(),
            batch: batch.batch as i32,
            total_q: batch.total_q,
            total_kv: batch.total_kv,
            max_seqlen_q: problem.limits.seqlen_q as i32,
            max_seqlen_kv: problem.limits.seqlen_kv as i32,
            mask: Mask::new(problem),
            block_m: self.forward.block_m as i32,
            blocks_per_entry: self.blocks_per_entry as i32,
            class_keys: class_keys(problem.limits.seqlen_kv) as i32,
            block_n: self.backward.block_n as i32,
            cluster: self.backward.cluster as i32,
            state: self.state.address,
            sequences: self.sequences.address,
            forward: self.forward_entries.address,
            backward: self.backward_entries.address,
            unseen: self.unseen_entries.address,
        };
        // SAFETY: the parameters match the kernel's; the caller answers for the stream.
        unsafe {
            let launch = Launch { grid: self.planner_cluster, cluster: self.planner_cluster, dependent: false };
            self.planner.launch(launch, stream, [(&raw const params).cast()])
        }
    }

    /// The error that the planner found, if any; synchronises.
    ///
    /// # Errors
    /// `InvalidOffsets` with the first bad index, `Cuda`.
    pub fn check(&self) -> Result<()> {
        self.read_state().map(|_| ())
    }

    fn read_state(&self) -> Result<PlanState> {
        let _guard = self.gpu.enter()?;
        let state = self.state.read::<PlanState>(1)?[0];
        let (index, value, bound) = (state.error_index, state.error_value, state.error_bound);
        let bad = |name: &str, rule: String| {
            let message = format!("{name}[{index}] is {value}, but must be {rule}");
            Err(Error::new(Status::InvalidOffsets, message))
        };
        let too_long = |name: &str, limit: &str| {
            let message = format!("{name}[{index}] begins a sequence of {value} rows, but {limit} is {bound}");
            Err(Error::new(Status::InvalidOffsets, message))
        };
        match state.error {
            0 => Ok(state),
            1 => bad("kv_offsets", "0 or more".into()),
            2 => bad("kv_offsets", format!("at least kv_offsets[{}] = {bound}", index - 1)),
            3 => bad("kv_offsets", format!("at most the {bound} rows of the tensor")),
            4 => bad("kv_lengths", format!("0 to the {bound} rows of its slot")),
            5 => too_long("kv_offsets", "max_seqlen_kv"),
            6 => bad("q_offsets", "0 or more".into()),
            7 => bad("q_offsets", format!("at least q_offsets[{}] = {bound}", index - 1)),
            8 => bad("q_offsets", format!("at most the {bound} rows of the tensor")),
            9 => too_long("q_offsets", "max_seqlen_q"),
            other => Err(Error::new(Status::Internal, format!("the planner reports the unknown error {other}"))),
        }
    }

    /// What was decided; synchronises.
    ///
    /// # Errors
    /// As [`Plan::check`].
    pub fn info(&self, problem: &Problem, extent: &Extent) -> Result<Info> {
        let state = self.read_state()?;
        let _guard = self.gpu.enter()?;
        let sequences = self.sequences.read::<Sequence>(extent.batch as usize)?;
        let sequences: Vec<crate::problem::Sequence> = sequences.iter().map(|&s| s.into()).collect();
        let workers = self.multiprocessors * self.forward.ctas;
        let mut forward =
            schedule::ForwardSchedule::new(problem, &sequences, self.forward.block_m, workers).dealt(self.deal);
        let sm90::Backward { block_n, workers, cluster, deal, .. } = self.backward;
        let backward = schedule::BackwardSchedule::new(problem, &sequences, block_n, workers, cluster).dealt(deal);
        // The device's lists are those of src/schedule; every test that asks for information checks it.
        let queries = [&forward.entries[..], &forward.keyless].concat();
        same_list("forward", &self.forward_entries, state.forward_entries + state.keyless_entries, &queries)?;
        same_list("backward", &self.backward_entries, state.backward_entries, &backward.entries)?;
        same_list("unseen keys", &self.unseen_entries, state.unseen_entries, &backward.unseen)?;
        // Heads that share tiles change how entries expand to tiles, not the list.
        (forward.heads, forward.blocks_per_entry) = self.forward.tile_shape(problem);
        forward.block_m /= i64::from(self.forward.pack);
        Ok(Info {
            arch: format!("sm_{}", self.architecture.target()),
            forward: Phase {
                kernel: self.forward.name.clone(),
                workers: self.deal.workers,
                cluster: 1,
                scheduler: self.forward_scheduler(problem),
                block_m: self.forward.block_m,
                block_n: self.forward.block_n,
                tiles: u64::from(state.forward_entries) * forward.width(),
                imbalance: forward.load(problem, &sequences).imbalance(),
            },
            backward: Phase {
                kernel: self.backward.name.clone(),
                workers: backward.workers,
                cluster: self.backward.cluster,
                scheduler: self.backward.scheduler(),
                block_m: self.backward.box_q,
                block_n: self.backward.block_n,
                tiles: u64::from(state.backward_entries) * problem.heads_kv as u64,
                imbalance: backward.load(problem, &sequences).imbalance(),
            },
        })
    }
}

/// The device with this ordinal, if this build has kernels for it.
fn open(ordinal: u32) -> Result<(Gpu, Architecture)> {
    if !image::any() {
        let message = "device_type is JFA_DEVICE_TYPE_CUDA, but this jfa was built without its feature cuda";
        return Err(Error::new(Status::Unsupported, message));
    }
    let gpu = Gpu::open(ordinal)?;
    if let Some(architecture) = Architecture::of(gpu.capability) {
        return Ok((gpu, architecture));
    }
    let (major, minor) = gpu.capability;
    let supported = Architecture::built().map(Architecture::describe).collect::<Vec<_>>().join(" and ");
    let message = format!(
        "CUDA device {ordinal} has compute capability {major}.{minor}, but this build of jfa supports {supported}"
    );
    Err(Error::new(Status::Unsupported, message))
}

/// Row coordinate at which every sequence ends in the tensor maps.
fn ragged_end(problem: &Problem) -> i64 {
    problem.limits.seqlen_q.max(problem.limits.seqlen_kv).max(1)
}

/// Fails if a list on the device differs from the one that the host makes of the same sequences.
fn same_list(name: &str, device: &Buffer, count: u32, host: &[Entry]) -> Result<()> {
    let list = device.read::<Entry>(count as usize)?;
    if list == host {
        return Ok(());
    }
    let at = list.iter().zip(host).position(|(a, b)| a != b).unwrap_or(list.len().min(host.len()));
    let message = format!(
        "the planner's list of {name} has {} entries and differs from the host's of {} at entry {at}",
        list.len(),
        host.len()
    );
    Err(Error::new(Status::Internal, message))
}

impl From<Sequence> for crate::problem::Sequence {
    fn from(s: Sequence) -> Self {
        crate::problem::Sequence {
            begin_q: s.begin_q,
            begin_o: s.begin_o,
            begin_kv: s.begin_kv,
            len_q: s.len_q.into(),
            len_kv: s.len_kv.into(),
        }
    }
}

/// Blocks of `batch` sequences of `total` rows together.
fn blocks_at_most(total: i64, batch: i64, block: i64) -> i64 {
    total / block + batch
}

/// Forward entries of `batch` sequences of `total_q` packed queries together.
fn forward_entries_at_most(problem: &Problem, total_q: i64, batch: i64, block_m: i64, blocks_per_entry: u32) -> i64 {
    if problem.broadcast_q {
        batch * schedule::blocks(problem.limits.seqlen_q, block_m * i64::from(blocks_per_entry))
    } else {
        blocks_at_most(total_q, batch, block_m)
    }
}

/// Coordinates of tensor maps and tile indices are 32-bit.
fn check_limits(problem: &Problem, block_m: i64) -> Result<()> {
    let limits = &problem.limits;
    let rows_o = problem.rows_o(limits.batch, limits.total_q);
    let longest = i64::from(UNBOUNDED / 2);
    for (name, value, limit) in [
        ("max_seqlen_q", limits.seqlen_q, longest),
        ("max_seqlen_kv", limits.seqlen_kv, longest),
        ("max_total_kv", limits.total_kv, i32::MAX.into()),
        ("max_total_q", limits.total_q, i32::MAX.into()),
        ("max_batch * max_seqlen_q", if problem.broadcast_q { rows_o } else { 0 }, i32::MAX.into()),
    ] {
        if value > limit {
            let message = format!("{name} is {value}, but the CUDA device supports at most {limit}");
            return Err(Error::new(Status::Unsupported, message));
        }
    }
    let blocks_per_entry = schedule::blocks_per_entry(problem, block_m);
    let tiles = forward_entries_at_most(problem, limits.total_q, limits.batch, block_m, blocks_per_entry)
        .checked_mul(i64::from(blocks_per_entry) * i64::from(problem.heads_q));
    if tiles.is_none_or(|tiles| tiles > i32::MAX.into()) {
        let message = "the batch may have more than 2^31 tiles: lower max_batch, the maxima of rows, or heads_q";
        return Err(Error::new(Status::Unsupported, message));
    }
    debug_assert!(problem.dtype != Dtype::Fp32, "refused by the C API");
    Ok(())
}
