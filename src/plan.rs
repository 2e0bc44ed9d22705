//! The plan: a problem, the batch it currently holds, and the backend that runs it.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::cpu;
use crate::cuda;
use crate::error::{Error, Result, Status};
use crate::problem::{ALIGNMENT, Device, Dtype, Problem};
pub use crate::tensor::Tensor;
use crate::tensor::{Shape, aligned, require};
use crate::workspace::{self, Carver};

/// The offsets of one batch, as the caller passes them: device pointers for a CUDA plan.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Sequences.
    pub batch: i64,
    /// Rows of packed Q.
    pub total_q: i64,
    /// Rows of K and V.
    pub total_kv: i64,
    /// `batch + 1` offsets of Q; null for broadcast Q.
    pub q_offsets: *const c_void,
    /// `batch + 1` offsets of K and V.
    pub kv_offsets: *const c_void,
    /// `batch` lengths of the key sequences, or null: whole slots.
    pub kv_lengths: *const c_void,
}

/// Sizes of the batch that a plan holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Sequences.
    pub batch: i64,
    /// Rows of Q and dQ.
    pub total_q: i64,
    /// Rows of K, V, dK and dV.
    pub total_kv: i64,
    /// Rows of O and dO, and of each head's LSE.
    pub total_o: i64,
}

/// Where the forward reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Output.
    pub o: Tensor,
    /// Log-sum-exp, one fp32 per row of O and query head, or null.
    pub lse: *mut f32,
}

/// Where the backward reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Backward {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Output of the forward.
    pub o: Tensor,
    /// Gradient of the output.
    pub grad_o: Tensor,
    /// Log-sum-exp of the forward.
    pub lse: *const f32,
    /// Gradient of the queries.
    pub grad_q: Tensor,
    /// Gradient of the keys.
    pub grad_k: Tensor,
    /// Gradient of the values.
    pub grad_v: Tensor,
    /// Gradients that are added to what their tensors hold.
    pub accumulate: Accumulate,
}

/// Which gradients are added to what their tensors hold; the others overwrite it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulate {
    /// dQ.
    pub grad_q: bool,
    /// dK.
    pub grad_k: bool,
    /// dV.
    pub grad_v: bool,
}

impl Accumulate {
    /// As the bits of `kernels/attention/params.cuh`.
    pub fn bits(self) -> i32 {
        i32::from(self.grad_q) | i32::from(self.grad_k) << 1 | i32::from(self.grad_v) << 2
    }
}

/// Caller's scratch memory.
#[derive(Clone, Copy, Debug)]
pub struct Workspace {
    /// First byte; may be null if no byte is needed.
    pub data: *mut c_void,
    /// Bytes.
    pub size: usize,
}

/// How a plan walks its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Every worker has a fixed list.
    Static,
    /// Workers take the next tile of the list from a counter.
    Atomic,
    /// Cluster launch control hands out the list.
    ClusterLaunchControl,
}

/// Shape of one phase of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name of the kernel.
    pub kernel: String,
    /// Workers: CTAs of the grid, or threads.
    pub workers: u32,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// How tiles are handed out.
    pub scheduler: Scheduler,
    /// Queries of a tile.
    pub block_m: i64,
    /// Keys of a tile.
    pub block_n: i64,
    /// Tiles of the current batch.
    pub tiles: u64,
    /// (query, key) pairs that the busiest worker visits, over the mean; 1 when there is no work.
    pub imbalance: f64,
}

/// What a plan decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Architecture: "cpu/avx2", "sm_90a" and the like.
    pub arch: String,
    /// The forward.
    pub forward: Phase,
    /// The backward.
    pub backward: Phase,
}

#[derive(Debug)]
enum Backend {
    Cpu(Box<cpu::Plan>),
    Cuda(Box<cuda::Plan>),
}

/// A problem made ready to run.
#[derive(Debug)]
pub struct Plan {
    problem: Problem,
    backend: Backend,
    /// The batch of the last update, or why there is none.
    extent: Result<Extent>,
}

impl Plan {
    /// Makes a plan with at most `workers` workers, 0 for as many as the device has.
    ///
    /// # Errors
    /// Those of [`Problem::validate`], and what the device says.
    pub fn new(problem: Problem, workers: u32) -> Result<Self> {
        problem.validate()?;
        let backend = match problem.device {
            Device::Cpu => Backend::Cpu(Box::new(cpu::Plan::new(&problem, workers)?)),
            Device::Cuda(ordinal) => Backend::Cuda(Box::new(cuda::Plan::new(&problem, ordinal, workers)?)),
        };
        log::debug!("plan created: {problem:?}");
        let none = Error::new(Status::NotReady, "the plan has no batch: call jfa_plan_update first");
        Ok(Plan { problem, backend, extent: Err(none) })
    }

    /// The problem this plan was made for.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Takes the offsets of a batch and lists its tiles. `stream` is the CUDA stream of a CUDA plan.
    ///
    /// # Safety
    /// The pointers of `batch` are valid for reading on the plan's device, and so is `stream`.
    ///
    /// # Errors
    /// What is wrong with the batch; the plan then holds none.
    pub unsafe fn update(&mut self, batch: &Batch, stream: *mut c_void) -> Result<()> {
        let result = self.check_batch(batch).and_then(|extent| {
            // SAFETY: the caller's promise.
            unsafe {
                match &mut self.backend {
                    Backend::Cpu(plan) => plan.update(&self.problem, batch)?,
                    Backend::Cuda(plan) => plan.update(&self.problem, batch, stream)?,
                }
            }
            Ok(extent)
        });
        self.extent = result.clone().map_err(|e| {
            let message = format!("the last jfa_plan_update failed: {}", e.message);
            Error::new(Status::NotReady, message)
        });
        result.map(|_| ())
    }

    fn check_batch(&self, b: &Batch) -> Result<Extent> {
        let limits = &self.problem.limits;
        let within = |name: &str, value: i64, limit_name: &str, limit: i64| match (0..=limit).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(name, value, format!("0 to {limit_name} = {limit}"))),
        };
        within("batch", b.batch, "max_batch", limits.batch)?;
        within("total_kv", b.total_kv, "max_total_kv", limits.total_kv)?;
        require(b.kv_offsets, "kv_offsets")?;
        let total_q = if self.problem.broadcast_q {
            if !b.q_offsets.is_null() {
                return Err(Error::invalid("q_offsets", "set", "null for a plan with JFA_BROADCAST_Q"));
            }
            limits.seqlen_q
        } else {
            within("total_q", b.total_q, "max_total_q", limits.total_q)?;
            require(b.q_offsets, "q_offsets")?;
            b.total_q
        };
        let total_o = self.problem.rows_o(b.batch, total_q);
        Ok(Extent { batch: b.batch, total_q, total_kv: b.total_kv, total_o })
    }

    /// What was decided for the current batch.
    ///
    /// # Errors
    /// `NotReady` without a valid batch.
    pub fn info(&self) -> Result<Info> {
        let extent = self.extent()?;
        match &self.backend {
            Backend::Cpu(plan) => Ok(plan.info(&self.problem)),
            Backend::Cuda(plan) => plan.info(&self.problem, &extent),
        }
    }

    /// The error of the current batch, if it has one.
    ///
    /// # Errors
    /// `NotReady` without a valid batch.
    pub fn check(&self) -> Result<()> {
        self.extent()?;
        match &self.backend {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(plan) => plan.check(),
        }
    }

    fn extent(&self) -> Result<Extent> {
        self.extent.clone()
    }

    /// Bytes of workspace that the forward and the backward need for any batch within the limits.
    pub fn workspace_size(&self) -> (usize, usize) {
        let (mut forward, mut backward) = (Carver::counting(), Carver::counting());
        match &self.backend {
            Backend::Cpu(plan) => {
                plan.carve_forward(&self.problem, &mut forward);
                plan.carve_backward(&self.problem, &mut backward);
            }
            Backend::Cuda(plan) => {
                plan.carve_forward(&self.problem, &mut forward);
                plan.carve_backward(&self.problem, &mut backward);
            }
        }
        (forward.used(), backward.used())
    }

    /// O and LSE of the current batch.
    ///
    /// # Safety
    /// Every pointer is valid on the plan's device for the rows that the batch's offsets name, and so is `stream`.
    ///
    /// # Errors
    /// What is wrong with an argument; nothing is written then.
    pub unsafe fn forward(&self, args: &Forward, workspace: Workspace, stream: *mut c_void) -> Result<()> {
        let extent = self.extent()?;
        let tensors = [
            self.operand("q", &args.q, Side::Query, false),
            self.operand("k", &args.k, Side::Key, false),
            self.operand("v", &args.v, Side::Key, false),
            self.operand("o", &args.o, Side::Output, true),
        ];
        let lse = Span::contiguous("lse", args.lse.cast(), self.stat_bytes(&extent), true);
        let (need, _) = self.workspace_size();
        let mut carver = check_workspace(workspace, need)?;
        let scratch = Span::contiguous("workspace", workspace.data, need, true);
        let lse = if args.lse.is_null() { None } else { Some(lse) };
        let [q, k, v, o] = self.check_operands(&tensors, &extent, [lse, Some(scratch)])?;
        let args = Forward { q, k, v, o, lse: args.lse };
        // SAFETY: the caller's promise; spans, alignment and workspace are checked.
        unsafe {
            match &self.backend {
                Backend::Cpu(plan) => plan.forward(&self.problem, &args, &mut carver),
                Backend::Cuda(plan) => plan.forward(&self.problem, &extent, &args, &mut carver, stream)?,
            }
        }
        Ok(())
    }

    /// dQ, dK and dV of the current batch.
    ///
    /// # Safety
    /// Every pointer is valid on the plan's device for the rows that the batch's offsets name, and so is `stream`.
    ///
    /// # Errors
    /// What is wrong with an argument; nothing is written then.
    pub unsafe fn backward(&self, args: &Backward, workspace: Workspace, stream: *mut c_void) -> Result<()> {
        let extent = self.extent()?;
        let tensors = [
            self.operand("q", &args.q, Side::Query, false),
            self.operand("k", &args.k, Side::Key, false),
            self.operand("v", &args.v, Side::Key, false),
            self.operand("o", &args.o, Side::Output, false),
            self.operand("grad_o", &args.grad_o, Side::Output, false),
            Operand { dtype: self.problem.grad_q_dtype, ..self.operand("grad_q", &args.grad_q, Side::Query, true) },
            self.operand("grad_k", &args.grad_k, Side::Key, true),
            self.operand("grad_v", &args.grad_v, Side::Key, true),
        ];
        let lse = Span::contiguous("lse", args.lse.cast(), self.stat_bytes(&extent), false);
        if extent.total_o > 0 {
            require(args.lse.cast(), "lse")?;
        }
        let (_, need) = self.workspace_size();
        let mut carver = check_workspace(workspace, need)?;
        let scratch = Span::contiguous("workspace", workspace.data, need, true);
        let [q, k, v, o, grad_o, grad_q, grad_k, grad_v] =
            self.check_operands(&tensors, &extent, [Some(lse), Some(scratch)])?;
        let args = Backward { q, k, v, o, grad_o, grad_q, grad_k, grad_v, ..*args };
        // SAFETY: the caller's promise; spans, alignment and workspace are checked.
        unsafe {
            match &self.backend {
                Backend::Cpu(plan) => plan.backward(&self.problem, &args, &mut carver),
                Backend::Cuda(plan) => plan.backward(&self.problem, &extent, &args, &mut carver, stream)?,
            }
        }
        Ok(())
    }

    fn stat_bytes(&self, extent: &Extent) -> usize {
        extent.total_o as usize * self.problem.heads_q as usize * size_of::<f32>()
    }

    fn operand(&self, name: &'static str, tensor: &Tensor, side: Side, output: bool) -> Operand {
        Operand { name, tensor: *tensor, side, output, dtype: self.problem.dtype }
    }

    /// Resolves default strides and checks every tensor by itself and each output against all others.
    fn check_operands<const N: usize>(
        &self,
        operands: &[Operand; N],
        extent: &Extent,
        buffers: [Option<Span>; 2],
    ) -> Result<[Tensor; N]> {
        let mut tensors = operands.each_ref().map(|operand| operand.tensor);
        let mut spans: Vec<Span> = Vec::with_capacity(N + buffers.len());
        for (operand, tensor) in operands.iter().zip(&mut tensors) {
            let (rows, heads) = match operand.side {
                Side::Query => (extent.total_q, self.problem.heads_q),
                Side::Key => (extent.total_kv, self.problem.heads_kv),
                Side::Output => (extent.total_o, self.problem.heads_q),
            };
            let shape = Shape { rows, heads: heads.into(), head_dim: self.problem.head_dim.into() };
            *tensor = tensor.with_default_strides(operand.name, operand.dtype, &shape)?;
            if rows > 0 {
                spans.push(operand.span(tensor, &shape)?);
            }
        }
        for buffer in buffers.into_iter().flatten().filter(|buffer| buffer.bytes > 0) {
            aligned(buffer.name, buffer.begin, size_of::<f32>())?;
            spans.push(buffer);
        }
        for (i, a) in spans.iter().enumerate() {
            for b in &spans[i + 1..] {
                if (a.output || b.output) && a.overlaps(b) {
                    let message = format!("{} overlaps {}, but outputs must not share memory", a.name, b.name);
                    return Err(Error::new(Status::InvalidArgument, message));
                }
            }
        }
        Ok(tensors)
    }
}

#[derive(Clone, Copy)]
enum Side {
    Query,
    Key,
    Output,
}

/// One tensor of a call, with what its checks need to know.
struct Operand {
    name: &'static str,
    tensor: Tensor,
    side: Side,
    output: bool,
    dtype: Dtype,
}

impl Operand {
    /// The bytes that a tensor of at least one row covers.
    fn span(&self, t: &Tensor, shape: &Shape) -> Result<Span> {
        require(t.data, self.name)?;
        aligned(self.name, t.data as usize, ALIGNMENT)?;
        if self.output {
            t.check_disjoint_rows(self.name, shape)?;
        }
        let &Shape { rows, heads, head_dim } = shape;
        let size = self.dtype.size();
        let (row_stride, head_stride) = (t.row_stride as usize * size, t.head_stride as usize * size);
        let piece = head_dim as usize * size;
        let head_bytes = (heads - 1) as usize * head_stride + piece;
        let row_bytes = (rows - 1) as usize * row_stride + piece;
        let by_rows = row_stride >= head_stride;
        Ok(Span {
            name: self.name,
            begin: t.data as usize,
            bytes: (rows - 1) as usize * row_stride + head_bytes,
            piece,
            inner: row_stride.min(head_stride),
            outer: row_stride.max(head_stride),
            width: if by_rows { head_bytes } else { row_bytes },
            output: self.output,
        })
    }
}

/// A strided set of bytes: pieces repeated along an inner and an outer stride.
struct Span {
    name: &'static str,
    begin: usize,
    bytes: usize,
    piece: usize,
    inner: usize,
    outer: usize,
    /// Bytes from the first to the last piece of one outer step.
    width: usize,
    output: bool,
}

impl Span {
    fn contiguous(name: &'static str, data: *const c_void, bytes: usize, output: bool) -> Self {
        Span { name, begin: data as usize, bytes, piece: bytes, inner: bytes, outer: bytes, width: bytes, output }
    }

    /// Whether two spans may share a byte. Spans with the same strides that interleave (the K and V of one fused
    /// buffer, say) are told apart by their distance modulo a stride.
    fn overlaps(&self, other: &Span) -> bool {
        if self.begin + self.bytes <= other.begin || other.begin + other.bytes <= self.begin {
            return false;
        }
        if (self.inner, self.outer) != (other.inner, other.outer) {
            return true;
        }
        let (low, high) = if self.begin <= other.begin { (self, other) } else { (other, self) };
        let apart = |stride: usize, low_width: usize, high_width: usize| {
            let distance = (high.begin - low.begin) % stride;
            distance >= low_width && stride - distance >= high_width
        };
        let interleaved = self.outer.is_multiple_of(self.inner) && apart(self.inner, low.piece, high.piece);
        !(interleaved || apart(self.outer, low.width, high.width))
    }
}

fn check_workspace(workspace: Workspace, need: usize) -> Result<Carver> {
    if workspace.size < need {
        let message = format!("workspace_size is {}, but the plan needs {need} bytes", workspace.size);
        return Err(Error::new(Status::WorkspaceTooSmall, message));
    }
    let Some(data) = NonNull::new(workspace.data.cast()).or((need == 0).then(NonNull::dangling)) else {
        return Err(Error::new(Status::NullPointer, format!("workspace is null, but the plan needs {need} bytes")));
    };
    if need > 0 {
        aligned("workspace", data.as_ptr() as usize, workspace::ALIGNMENT)?;
    }
    Ok(Carver::new(data))
}
