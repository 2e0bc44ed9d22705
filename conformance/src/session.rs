//! A plan and all the memory around it: everything that a case needs to run.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use jfa::capi::{
    JFA_BROADCAST_Q, JFA_DETERMINISTIC, jfa_backward_args, jfa_batch, jfa_const_tensor, jfa_forward_args, jfa_plan,
    jfa_plan_desc, jfa_plan_details, jfa_tensor,
};

use crate::api::{Api, status};
use crate::case::{Case, Name};
use crate::compare::Results;
use crate::dtype::Dtype;
use crate::geometry::{Geometry, View, place};
use crate::memory::{Block, Memory};
use crate::reference::Inputs;

/// Where cases run.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The library.
    pub api: &'a Api,
    /// Memory of the device.
    pub memory: &'a dyn Memory,
    /// A jfa_device_type.
    pub device_type: i32,
    /// Leave out the backward: its results are empty.
    pub forward_only: bool,
}

/// Results before the run, and rows of inputs that nobody may read: a NaN in every type.
const POISON: [u8; 2] = 0xffffu16.to_le_bytes();
/// Bytes around the results, which nobody may write: another NaN in every type.
const GUARD: [u8; 2] = 0x7fc1u16.to_le_bytes();
/// Bytes before and behind the workspace; the front keeps its alignment of 256.
const WORKSPACE_GUARD: usize = 4096;

fn fill(bytes: usize, pattern: [u8; 2]) -> Vec<u8> {
    let mut filled = pattern.repeat(bytes.div_ceil(pattern.len()));
    filled.truncate(bytes);
    filled
}

/// A buffer and what was put there; no image if it is sparse.
struct Buffer<'m> {
    block: Block<'m>,
    image: Vec<u8>,
}

/// A created plan; destroyed when dropped.
struct Handle<'a> {
    api: &'a Api,
    plan: *mut jfa_plan,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: a live plan that nothing uses any more.
        unsafe { (self.api.plan_destroy)(self.plan) }
    }
}

/// A workspace between guards.
struct Workspace<'m> {
    block: Block<'m>,
    size: usize,
}

impl<'m> Workspace<'m> {
    fn new(memory: &'m dyn Memory, size: usize) -> Result<Self, String> {
        let block = Block::new(memory, size + 2 * WORKSPACE_GUARD)?;
        // Garbage: a library that relies on zeros is found out. Huge ones stay untouched.
        let body = if size < 1 << 26 { size } else { 0 };
        block.write(0, &fill(WORKSPACE_GUARD + body, POISON))?;
        block.write(WORKSPACE_GUARD + size, &fill(WORKSPACE_GUARD, GUARD))?;
        block.write(0, &fill(WORKSPACE_GUARD, GUARD))?;
        Ok(Workspace { block, size })
    }

    fn data(&self) -> *mut c_void {
        self.block.at(WORKSPACE_GUARD) as *mut c_void
    }

    fn intact(&self) -> Result<bool, String> {
        let expected = fill(WORKSPACE_GUARD, GUARD);
        let (mut front, mut back) = (expected.clone(), expected.clone());
        self.block.read(0, &mut front)?;
        self.block.read(WORKSPACE_GUARD + self.size, &mut back)?;
        Ok(front == expected && back == expected)
    }
}

/// A case made ready to run.
pub struct Session<'a> {
    target: Target<'a>,
    case: &'a Case,
    /// Offsets, sequences and rows.
    pub geometry: Geometry,
    views: Vec<View>,
    buffers: Vec<Buffer<'a>>,
    lse: Buffer<'a>,
    offsets: [Block<'a>; 3],
    handle: Handle<'a>,
    workspaces: [Workspace<'a>; 2],
}

impl<'a> Session<'a> {
    /// Creates the plan and allocates everything; all is poison until `upload`.
    pub fn new(target: Target<'a>, case: &'a Case) -> Result<Self, String> {
        let geometry = Geometry::new(case);
        let api = target.api;
        let mut handle = Handle { api, plan: null_mut() };
        // SAFETY: valid pointers; the handle is destroyed once.
        let created = unsafe { (api.plan_create)(&description(target, case, &geometry), &mut handle.plan) };
        api.expect("jfa_plan_create", created)?;
        let (mut forward, mut backward) = (0, 0);
        // SAFETY: a live plan and valid out pointers.
        let status = unsafe { (api.plan_workspace_size)(handle.plan, &mut forward, &mut backward) };
        api.expect("jfa_plan_workspace_size", status)?;
        let memory = target.memory;
        let workspaces = [Workspace::new(memory, forward)?, Workspace::new(memory, backward)?];
        let (views, sizes) = place(case, &geometry);
        let mut buffers = Vec::new();
        for &bytes in &sizes {
            buffers.push(Buffer { block: Block::new(memory, bytes)?, image: Vec::new() });
        }
        if !case.layout.sparse {
            for view in &views {
                let image = &mut buffers[view.buffer].image;
                if image.is_empty() {
                    *image = fill(sizes[view.buffer], if is_output(view.name) { GUARD } else { POISON });
                }
                for at in view.pieces() {
                    image[at..at + view.piece()].copy_from_slice(&fill(view.piece(), POISON));
                }
            }
        }
        let lse_len = geometry.total_o as usize * case.heads_q;
        let mut lse = Buffer { block: Block::new(memory, (lse_len + 64) * 4)?, image: Vec::new() };
        if !case.layout.sparse {
            lse.image = fill((lse_len + 64) * 4, GUARD);
            for at in lse_offsets(case, &geometry) {
                lse.image[at..at + 4].copy_from_slice(&fill(4, POISON));
            }
        }
        let entries = (case.lengths.len() + 1) * 8;
        let offsets = [Block::new(memory, entries)?, Block::new(memory, entries)?, Block::new(memory, entries)?];
        let session = Session { target, case, geometry, views, buffers, lse, offsets, handle, workspaces };
        session.write_offsets(&session.geometry)?;
        Ok(session)
    }

    /// Puts values into the used rows of the inputs, and of gradients that are added to what is there.
    pub fn upload(&mut self, inputs: &Inputs) -> Result<(), String> {
        for view in &self.views {
            let values = match view.name {
                Name::Q => &inputs.q,
                Name::K => &inputs.k,
                Name::V => &inputs.v,
                Name::GradO => &inputs.grad_o,
                Name::GradQ => &inputs.grad_q,
                Name::GradK => &inputs.grad_k,
                Name::GradV => &inputs.grad_v,
                Name::O => continue,
            };
            let buffer = &mut self.buffers[view.buffer];
            let mut bytes = Vec::with_capacity(values.len() * view.dtype.size());
            view.dtype.encode(values, &mut bytes);
            for (at, piece) in view.pieces().zip(bytes.chunks(view.piece())) {
                match buffer.image.is_empty() {
                    true => buffer.block.write(at, piece)?,
                    false => buffer.image[at..at + piece.len()].copy_from_slice(piece),
                }
            }
        }
        // Whole images, so that the bytes around the used rows are there too.
        for buffer in &self.buffers {
            buffer.block.write(0, &buffer.image)?;
        }
        self.reset()
    }

    /// Poisons the results and what surrounds them; gradients that are added to what is there get it back.
    pub fn reset(&self) -> Result<(), String> {
        for view in self.views.iter().filter(|view| is_output(view.name)) {
            let buffer = &self.buffers[view.buffer];
            match buffer.image.is_empty() {
                true => view.pieces().try_for_each(|at| buffer.block.write(at, &fill(view.piece(), POISON)))?,
                false => buffer.block.write(0, &buffer.image)?,
            }
        }
        match self.lse.image.is_empty() {
            true => {
                lse_offsets(self.case, &self.geometry).try_for_each(|at| self.lse.block.write(at, &fill(4, POISON)))
            }
            false => self.lse.block.write(0, &self.lse.image),
        }
    }

    /// Writes offsets to the device without telling the plan.
    pub fn write_offsets(&self, geometry: &Geometry) -> Result<(), String> {
        let lengths = geometry.kv_lengths.as_deref().unwrap_or_default();
        for (block, values) in self.offsets.iter().zip([&geometry.q_offsets[..], &geometry.kv_offsets[..], lengths]) {
            let bytes: Vec<u8> = match self.case.int64 {
                true => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                false => values.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            };
            block.write(0, &bytes)?;
        }
        Ok(())
    }

    /// jfa_plan_update().
    pub fn update(&mut self) -> i32 {
        let g = &self.geometry;
        let pointer = |used: bool, block: &Block| if used { block.at(0) as *const c_void } else { null() };
        let default = self.case.layout.default_totals;
        let batch = jfa_batch {
            struct_size: size_of::<jfa_batch>(),
            batch: self.case.lengths.len() as i64,
            total_q: if default { -1 } else { g.total_q },
            total_kv: if default { -1 } else { g.total_kv },
            q_offsets: pointer(!g.q_offsets.is_empty(), &self.offsets[0]),
            kv_offsets: pointer(true, &self.offsets[1]),
            kv_lengths: pointer(g.kv_lengths.is_some(), &self.offsets[2]),
        };
        // SAFETY: a live plan that this session owns, and arrays of the sizes stated.
        unsafe { (self.target.api.plan_update)(self.handle.plan, &batch, null_mut()) }
    }

    /// jfa_plan_check().
    pub fn check(&self) -> i32 {
        // SAFETY: a live plan.
        unsafe { (self.target.api.plan_check)(self.handle.plan) }
    }

    /// jfa_plan_info().
    pub fn info(&self) -> Result<jfa_plan_details, String> {
        // SAFETY: integers, floats and character arrays, for which all bytes 0 are valid.
        let mut details: jfa_plan_details = unsafe { std::mem::zeroed() };
        details.struct_size = size_of::<jfa_plan_details>();
        // SAFETY: a live plan and a struct of the stated size.
        let status = unsafe { (self.target.api.plan_info)(self.handle.plan, &mut details) };
        self.target.api.expect("jfa_plan_info", status).map(|()| details)
    }

    fn read_only(&self, name: Name) -> jfa_const_tensor {
        let jfa_tensor { data, row_stride, head_stride } = self.writable(name);
        jfa_const_tensor { data, row_stride, head_stride }
    }

    fn writable(&self, name: Name) -> jfa_tensor {
        let view = &self.views[name as usize];
        let data = if view.null { null_mut() } else { self.buffers[view.buffer].block.at(view.start) as *mut c_void };
        jfa_tensor { data, row_stride: view.passed.0, head_stride: view.passed.1 }
    }

    fn lse(&self) -> *mut f32 {
        let null = self.case.layout.null_if_empty && self.geometry.total_o == 0;
        if null { null_mut() } else { self.lse.block.at(0) as *mut f32 }
    }

    /// jfa_forward().
    pub fn forward(&self, with_lse: bool) -> i32 {
        let args = jfa_forward_args {
            struct_size: size_of::<jfa_forward_args>(),
            q: self.read_only(Name::Q),
            k: self.read_only(Name::K),
            v: self.read_only(Name::V),
            o: self.writable(Name::O),
            lse: if with_lse { self.lse() } else { null_mut() },
            workspace: self.workspaces[0].data(),
            workspace_size: self.workspaces[0].size,
        };
        // SAFETY: a live plan and tensors of the shapes that its batch states.
        unsafe { (self.target.api.forward)(self.handle.plan, &args, null_mut()) }
    }

    /// jfa_backward(), unless it is left out.
    pub fn backward(&self) -> i32 {
        if self.target.forward_only {
            return status::SUCCESS;
        }
        let args = jfa_backward_args {
            struct_size: size_of::<jfa_backward_args>(),
            q: self.read_only(Name::Q),
            k: self.read_only(Name::K),
            v: self.read_only(Name::V),
            o: self.read_only(Name::O),
            grad_o: self.read_only(Name::GradO),
            lse: self.lse(),
            grad_q: self.writable(Name::GradQ),
            grad_k: self.writable(Name::GradK),
            grad_v: self.writable(Name::GradV),
            workspace: self.workspaces[1].data(),
            workspace_size: self.workspaces[1].size,
            accumulate: self.case.accumulate,
            reserved: 0,
        };
        // SAFETY: a live plan and tensors of the shapes that its batch states.
        unsafe { (self.target.api.backward)(self.handle.plan, &args, null_mut()) }
    }

    /// Waits for the device and fetches the used rows of the results.
    pub fn results(&self) -> Result<Results, String> {
        self.target.memory.synchronize()?;
        let mut lse = Vec::new();
        let mut bytes = vec![0; if self.lse.image.is_empty() { 0 } else { self.lse.image.len() }];
        self.lse.block.read(0, &mut bytes)?;
        for at in lse_offsets(self.case, &self.geometry) {
            let mut value = [0; 4];
            match bytes.is_empty() {
                true => self.lse.block.read(at, &mut value)?,
                false => value.copy_from_slice(&bytes[at..at + 4]),
            }
            lse.push(f32::from_le_bytes(value));
        }
        let gradient = |name| if self.target.forward_only { Ok(Vec::new()) } else { self.fetch(name) };
        Ok(Results {
            o: self.fetch(Name::O)?,
            lse,
            grad_q: gradient(Name::GradQ)?,
            grad_k: gradient(Name::GradK)?,
            grad_v: gradient(Name::GradV)?,
        })
    }

    fn fetch(&self, name: Name) -> Result<Vec<f32>, String> {
        let view = &self.views[name as usize];
        let buffer = &self.buffers[view.buffer];
        let mut whole = vec![0; buffer.image.len()];
        buffer.block.read(0, &mut whole)?;
        let (mut values, mut piece) = (Vec::new(), vec![0; view.piece()]);
        for at in view.pieces() {
            match whole.is_empty() {
                true => buffer.block.read(at, &mut piece)?,
                false => piece.copy_from_slice(&whole[at..at + view.piece()]),
            }
            view.dtype.decode(&piece, &mut values);
        }
        Ok(values)
    }

    /// Writes that nobody may make: outside the used rows of results, anywhere in inputs, around the workspace.
    pub fn violations(&self) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for (index, buffer) in self.buffers.iter().enumerate().filter(|(_, buffer)| !buffer.image.is_empty()) {
            let mut now = vec![0; buffer.image.len()];
            buffer.block.read(0, &mut now)?;
            let views = || self.views.iter().filter(|view| view.buffer == index);
            for view in views().filter(|view| is_output(view.name)) {
                for at in view.pieces() {
                    now[at..at + view.piece()].copy_from_slice(&buffer.image[at..at + view.piece()]);
                }
            }
            if let Some(at) = now.iter().zip(&buffer.image).position(|(a, b)| a != b) {
                let names: Vec<String> = views().map(|view| format!("{:?}", view.name)).collect();
                let view = views().next().ok_or("a buffer without a tensor")?;
                let element = (at as i64 - view.start as i64).div_euclid(view.dtype.size() as i64);
                let row = element.div_euclid(view.row_stride.max(1));
                found.push(format!("{} was written outside its sequences, near row {row}", names.join("+")));
            }
        }
        if !self.lse.image.is_empty() {
            let mut now = vec![0; self.lse.image.len()];
            self.lse.block.read(0, &mut now)?;
            lse_offsets(self.case, &self.geometry).for_each(|at| now[at..at + 4].copy_from_slice(&fill(4, POISON)));
            if let Some(at) = now.iter().zip(&self.lse.image).position(|(a, b)| a != b) {
                found.push(format!("LSE was written outside its sequences, at element {}", at / 4));
            }
        }
        for (workspace, name) in self.workspaces.iter().zip(["forward", "backward"]) {
            if !workspace.intact()? {
                found.push(format!("the bytes around the {name}'s workspace of {} were written", workspace.size));
            }
        }
        Ok(found)
    }
}

fn is_output(name: Name) -> bool {
    matches!(name, Name::O | Name::GradQ | Name::GradK | Name::GradV)
}

/// Bytes of the LSE of every used row, in order, heads innermost.
fn lse_offsets<'s>(case: &'s Case, geometry: &'s Geometry) -> impl Iterator<Item = usize> + 's {
    geometry.sequences.iter().enumerate().flat_map(move |(b, s)| {
        (0..s.len_q).flat_map(move |i| (0..case.heads_q).map(move |h| 4 * geometry.lse_index(case, b, h, i)))
    })
}

fn description(target: Target, case: &Case, geometry: &Geometry) -> jfa_plan_desc {
    let flag = |set, bit| if set { bit } else { 0 };
    let extra = |amount: i64| if case.loose && !case.layout.default_totals { amount } else { 0 };
    let longest = |len: fn((usize, usize)) -> usize| {
        (0..case.lengths.len()).map(|b| len(case.length(b))).max().unwrap_or(0) as i64
    };
    jfa_plan_desc {
        struct_size: size_of::<jfa_plan_desc>(),
        device_type: target.device_type,
        device_index: 0,
        dtype: case.dtype.code(),
        grad_q_dtype: if case.grad_q_fp32 { Dtype::Fp32.code() } else { 0 },
        index_type: i32::from(case.int64),
        heads_q: case.heads_q as i32,
        heads_kv: case.heads_kv as i32,
        head_dim: case.head_dim as i32,
        window_left: case.mask.left,
        window_right: case.mask.right,
        alignment: i32::from(case.mask.bottom_right),
        scale: case.scale,
        flags: flag(case.broadcast.is_some(), JFA_BROADCAST_Q) | flag(case.deterministic, JFA_DETERMINISTIC),
        max_workers: case.workers,
        max_batch: case.lengths.len() as i64 + extra(3),
        max_total_q: geometry.total_q + extra(100),
        max_total_kv: geometry.total_kv + extra(200),
        max_seqlen_q: case.broadcast.map_or_else(|| longest(|l| l.0) + extra(57), |seqlen| seqlen as i64),
        max_seqlen_kv: longest(|l| l.1) + extra(91),
    }
}
