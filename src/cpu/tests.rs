//! A quick net: every feature on small shapes against a naive double-precision reference.

use std::ffi::c_void;
use std::ops::Range;

use half::{bf16, f16};

use crate::plan::{Accumulate, Backward, Batch, Forward, Plan, Tensor, Workspace};
use crate::problem::{Alignment, Device, Dtype, IndexType, Limits, Mask, Problem, Sequence};

/// What outputs hold before a call, to see who writes where.
const UNTOUCHED: f32 = 77.0;

#[derive(Clone)]
struct Case {
    dtype: Dtype,
    grad_q: Dtype,
    heads: (usize, usize),
    dim: usize,
    mask: Mask,
    /// Queries of a broadcast Q.
    broadcast: Option<i64>,
    /// Queries of each packed sequence.
    len_q: Vec<i64>,
    /// Keys of each sequence and unused rows after them.
    len_kv: Vec<(i64, i64)>,
    /// Extra elements per row and per head.
    pad: (usize, usize),
    workers: u32,
    /// Gradients that start with random values, to which theirs are added.
    accumulate: Accumulate,
}

impl Case {
    fn new(len_q: &[i64], len_kv: &[(i64, i64)]) -> Self {
        Case {
            dtype: Dtype::Fp32,
            grad_q: Dtype::Fp32,
            heads: (2, 2),
            dim: 16,
            mask: Mask::NONE,
            broadcast: None,
            len_q: len_q.to_vec(),
            len_kv: len_kv.to_vec(),
            pad: (0, 0),
            workers: 2,
            accumulate: Accumulate::default(),
        }
    }

    fn problem(&self) -> Problem {
        let (q, kv): (i64, i64) = (self.len_q.iter().sum(), self.len_kv.iter().map(|(len, gap)| len + gap).sum());
        let longest = |lengths: &mut dyn Iterator<Item = i64>| lengths.max().unwrap_or(0);
        Problem {
            device: Device::Cpu,
            dtype: self.dtype,
            grad_q_dtype: self.grad_q,
            index_type: IndexType::Int64,
            heads_q: self.heads.0 as i32,
            heads_kv: self.heads.1 as i32,
            head_dim: self.dim as i32,
            scale: 0.3,
            mask: self.mask,
            broadcast_q: self.broadcast.is_some(),
            deterministic: true,
            limits: Limits {
                batch: self.len_kv.len() as i64,
                total_q: q + 4,
                total_kv: kv + 4,
                seqlen_q: self.broadcast.unwrap_or(longest(&mut self.len_q.iter().copied())),
                seqlen_kv: longest(&mut self.len_kv.iter().map(|x| x.0)),
            },
        }
    }
}

/// A tensor in memory, with a NaN or a mark in every element that no test value was written to.
#[derive(Clone, PartialEq, Debug)]
struct Buffer {
    dtype: Dtype,
    bytes: Vec<u128>,
    shape: (usize, usize, usize),
    strides: (usize, usize),
}

impl Buffer {
    fn new(dtype: Dtype, shape: (usize, usize, usize), pad: (usize, usize), fill: f32) -> Self {
        let head = shape.2 + pad.1;
        let row = shape.1 * head + pad.0;
        let mut buffer = Buffer { dtype, bytes: vec![0; shape.0 * row * 4 / 16 + 1], shape, strides: (row, head) };
        (0..shape.0 * row).for_each(|i| buffer.put(i, fill));
        buffer
    }

    fn put(&mut self, i: usize, x: f32) {
        let data = self.bytes.as_mut_ptr();
        // SAFETY: indices stay within `shape` and strides, for which the vector was sized.
        unsafe {
            match self.dtype {
                Dtype::Bf16 => *data.cast::<bf16>().add(i) = bf16::from_f32(x),
                Dtype::Fp16 => *data.cast::<f16>().add(i) = f16::from_f32(x),
                Dtype::Fp32 => *data.cast::<f32>().add(i) = x,
            }
        }
    }

    fn at(&self, row: i64, head: usize, d: usize) -> usize {
        row as usize * self.strides.0 + head * self.strides.1 + d
    }

    fn get(&self, row: i64, head: usize, d: usize) -> f64 {
        let (data, i) = (self.bytes.as_ptr(), self.at(row, head, d));
        // SAFETY: as above.
        unsafe {
            match self.dtype {
                Dtype::Bf16 => (*data.cast::<bf16>().add(i)).to_f64(),
                Dtype::Fp16 => (*data.cast::<f16>().add(i)).to_f64(),
                Dtype::Fp32 => (*data.cast::<f32>().add(i)).into(),
            }
        }
    }

    fn randomise(&mut self, rows: Range<i64>, seed: &mut u64) {
        for row in rows {
            for head in 0..self.shape.1 {
                for d in 0..self.shape.2 {
                    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let x = (*seed >> 40) as f32 / (1 << 23) as f32 - 1.0;
                    self.put(self.at(row, head, d), 1.5 * x);
                }
            }
        }
    }

    fn tensor(&self) -> Tensor {
        Tensor {
            data: self.bytes.as_ptr().cast_mut().cast(),
            row_stride: self.strides.0 as i64,
            head_stride: self.strides.1 as i64,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Data {
    q: Buffer,
    k: Buffer,
    v: Buffer,
    o: Buffer,
    lse: Vec<f32>,
    grad_o: Buffer,
    grad_q: Buffer,
    grad_k: Buffer,
    grad_v: Buffer,
}

#[repr(align(256))]
#[derive(Clone, Copy)]
struct Aligned(#[allow(dead_code)] [u8; 256]);

struct Run {
    case: Case,
    problem: Problem,
    sequences: Vec<Sequence>,
    data: Data,
    /// dQ, dK and dV before the call.
    start: [Buffer; 3],
}

impl Run {
    fn new(case: &Case) -> Self {
        let problem = case.problem();
        let (mut begin_q, mut begin_kv) = (2, 3);
        let mut sequences = Vec::new();
        for (b, &(len_kv, gap)) in case.len_kv.iter().enumerate() {
            let (first_q, first_o, len_q) = match case.broadcast {
                Some(len) => (0, b as i64 * len, len),
                None => (begin_q, begin_q, case.len_q[b]),
            };
            sequences.push(Sequence { begin_q: first_q, begin_o: first_o, begin_kv, len_q, len_kv });
            begin_q += len_q;
            begin_kv += len_kv + gap;
        }
        let rows_kv = problem.limits.total_kv as usize;
        let rows_q = case.broadcast.unwrap_or(problem.limits.total_q) as usize;
        let rows_o = problem.rows_o(sequences.len() as i64, rows_q as i64) as usize;
        let buffer = |dtype, rows, heads, fill| Buffer::new(dtype, (rows, heads, case.dim), case.pad, fill);
        let (hq, hkv) = case.heads;
        let mut data = Data {
            q: buffer(case.dtype, rows_q, hq, f32::NAN),
            k: buffer(case.dtype, rows_kv, hkv, f32::NAN),
            v: buffer(case.dtype, rows_kv, hkv, f32::NAN),
            o: buffer(case.dtype, rows_o, hq, UNTOUCHED),
            lse: vec![UNTOUCHED; rows_o * hq],
            grad_o: buffer(case.dtype, rows_o, hq, f32::NAN),
            grad_q: buffer(case.grad_q, rows_q, hq, UNTOUCHED),
            grad_k: buffer(case.dtype, rows_kv, hkv, UNTOUCHED),
            grad_v: buffer(case.dtype, rows_kv, hkv, UNTOUCHED),
        };
        let mut seed = 42;
        for (i, s) in sequences.iter().enumerate() {
            if i == 0 || case.broadcast.is_none() {
                data.q.randomise(s.begin_q..s.begin_q + s.len_q, &mut seed);
            }
            data.k.randomise(s.begin_kv..s.begin_kv + s.len_kv, &mut seed);
            data.v.randomise(s.begin_kv..s.begin_kv + s.len_kv, &mut seed);
            data.grad_o.randomise(s.begin_o..s.begin_o + s.len_q, &mut seed);
        }
        if case.accumulate.grad_q && case.broadcast.is_some() {
            data.grad_q.randomise(0..rows_q as i64, &mut seed);
        }
        for s in &sequences {
            if case.accumulate.grad_q && case.broadcast.is_none() {
                data.grad_q.randomise(s.begin_q..s.begin_q + s.len_q, &mut seed);
            }
            for (add, buffer) in
                [(case.accumulate.grad_k, &mut data.grad_k), (case.accumulate.grad_v, &mut data.grad_v)]
            {
                if add {
                    buffer.randomise(s.begin_kv..s.begin_kv + s.len_kv, &mut seed);
                }
            }
        }
        let start = [&data.grad_q, &data.grad_k, &data.grad_v].map(Buffer::clone);
        Run { case: case.clone(), problem, sequences, data, start }
    }

    fn execute(&mut self) {
        let mut plan = Plan::new(self.problem.clone(), self.case.workers).unwrap();
        let mut q: Vec<i64> = self.sequences.iter().map(|s| s.begin_q).collect();
        q.push(self.sequences.last().map_or(0, |s| s.begin_q + s.len_q));
        let mut kv: Vec<i64> = self.sequences.iter().map(|s| s.begin_kv).collect();
        let gap = self.case.len_kv.last().map_or(0, |x| x.1);
        kv.push(self.sequences.last().map_or(3, |s| s.begin_kv + s.len_kv + gap));
        let lengths: Vec<i64> = self.sequences.iter().map(|s| s.len_kv).collect();
        let pointer = |v: &Vec<i64>| v.as_ptr().cast::<c_void>();
        let batch = Batch {
            batch: self.sequences.len() as i64,
            total_q: self.problem.limits.total_q,
            total_kv: self.problem.limits.total_kv,
            q_offsets: if self.case.broadcast.is_some() { std::ptr::null() } else { pointer(&q) },
            kv_offsets: pointer(&kv),
            kv_lengths: pointer(&lengths),
        };
        let (forward, backward) = plan.workspace_size();
        let mut memory = vec![Aligned([0xff; 256]); forward.max(backward) / 256 + 1];
        let workspace = Workspace { data: memory.as_mut_ptr().cast(), size: memory.len() * 256 };
        let d = &mut self.data;
        let (q, k, v, o, grad_o) = (d.q.tensor(), d.k.tensor(), d.v.tensor(), d.o.tensor(), d.grad_o.tensor());
        let (grad_q, grad_k, grad_v) = (d.grad_q.tensor(), d.grad_k.tensor(), d.grad_v.tensor());
        let (lse, stream) = (d.lse.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the buffers have the rows that the batch names.
        unsafe {
            plan.update(&batch, stream).unwrap();
            plan.forward(&Forward { q, k, v, o, lse }, workspace, stream).unwrap();
            let accumulate = self.case.accumulate;
            let args = Backward { q, k, v, o, grad_o, lse, grad_q, grad_k, grad_v, accumulate };
            plan.backward(&args, workspace, stream).unwrap();
        }
        let info = plan.info().unwrap();
        assert!(info.forward.imbalance >= 1.0 && info.backward.imbalance >= 1.0 && info.arch.starts_with("cpu/"));
    }

    fn lse_index(&self, b: usize, head: usize, i: i64) -> usize {
        let s = &self.sequences[b];
        match self.case.broadcast {
            Some(len) => (b * self.case.heads.0 + head) * len as usize + i as usize,
            None => head * self.problem.limits.total_q as usize + (s.begin_o + i) as usize,
        }
    }

    /// O, LSE, dQ, dK and dV in double precision, untouched where no sequence lies.
    fn reference(&self) -> Data {
        let d = &self.data;
        let double = |b: &Buffer| vec![f64::from(UNTOUCHED); b.shape.0 * b.shape.1 * b.shape.2];
        let (mut o, mut grad_q, mut grad_k, mut grad_v) =
            (double(&d.o), double(&d.grad_q), double(&d.grad_k), double(&d.grad_v));
        let mut lse = vec![UNTOUCHED; d.lse.len()];
        let ((hq, hkv), dim) = (self.case.heads, self.case.dim);
        let at = |row: i64, head: usize, heads: usize| (row as usize * heads + head) * dim;
        if self.case.broadcast.is_some() {
            grad_q.fill(0.0);
        }
        for s in &self.sequences {
            if self.case.broadcast.is_none() {
                grad_q[at(s.begin_q, 0, hq)..at(s.begin_q + s.len_q, 0, hq)].fill(0.0);
            }
            grad_k[at(s.begin_kv, 0, hkv)..at(s.begin_kv + s.len_kv, 0, hkv)].fill(0.0);
            grad_v[at(s.begin_kv, 0, hkv)..at(s.begin_kv + s.len_kv, 0, hkv)].fill(0.0);
        }
        for (b, s) in self.sequences.iter().enumerate() {
            for h in 0..hq {
                let g = h / (hq / hkv);
                for i in 0..s.len_q {
                    // The rule of the mask, spelled out once more.
                    let shift = if self.case.mask.alignment == Alignment::TopLeft { 0 } else { s.len_kv - s.len_q };
                    let keys: Vec<i64> = (0..s.len_kv)
                        .filter(|j| self.case.mask.left.is_none_or(|left| i + shift - j <= left))
                        .filter(|j| self.case.mask.right.is_none_or(|right| j - i - shift <= right))
                        .collect();
                    let dot = |x: &Buffer, rx, hx, y: &Buffer, ry, hy| -> f64 {
                        (0..dim).map(|c| x.get(rx, hx, c) * y.get(ry, hy, c)).sum()
                    };
                    let scale = f64::from(self.problem.scale);
                    let scores: Vec<f64> =
                        keys.iter().map(|j| scale * dot(&d.q, s.begin_q + i, h, &d.k, s.begin_kv + j, g)).collect();
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                    let at_o = at(s.begin_o + i, h, hq);
                    o[at_o..at_o + dim].fill(0.0);
                    lse[self.lse_index(b, h, i)] = (max + sum.ln()) as f32;
                    if keys.is_empty() {
                        lse[self.lse_index(b, h, i)] = f32::NEG_INFINITY;
                        continue;
                    }
                    let p: Vec<f64> = scores.iter().map(|x| (x - max).exp() / sum).collect();
                    for (p, j) in p.iter().zip(&keys) {
                        (0..dim).for_each(|c| o[at_o + c] += p * d.v.get(s.begin_kv + j, g, c));
                    }
                    let delta: f64 = (0..dim).map(|c| o[at_o + c] * d.grad_o.get(s.begin_o + i, h, c)).sum();
                    for (p, j) in p.iter().zip(&keys) {
                        let dp = dot(&d.grad_o, s.begin_o + i, h, &d.v, s.begin_kv + j, g);
                        let ds = p * (dp - delta) * scale;
                        let (at_q, at_k) = (at(s.begin_q + i, h, hq), at(s.begin_kv + j, g, hkv));
                        for c in 0..dim {
                            // Far below rounding, but not 0: an exact 0 is only asked for where nothing contributes.
                            let add = |sum: &mut f64, x: f64| *sum += x + 1e-30;
                            add(&mut grad_q[at_q + c], ds * d.k.get(s.begin_kv + j, g, c));
                            add(&mut grad_k[at_k + c], ds * d.q.get(s.begin_q + i, h, c));
                            add(&mut grad_v[at_k + c], p * d.grad_o.get(s.begin_o + i, h, c));
                        }
                    }
                }
            }
        }
        let Accumulate { grad_q: add_q, grad_k: add_k, grad_v: add_v } = self.case.accumulate;
        let sums = [(add_q, &mut grad_q), (add_k, &mut grad_k), (add_v, &mut grad_v)];
        for ((add, sum), start) in sums.into_iter().zip(&self.start) {
            for (i, sum) in sum.iter_mut().enumerate().filter(|_| add) {
                let (row, head) = (i / dim / start.shape.1, i / dim % start.shape.1);
                let start = start.get(row as i64, head, i % dim);
                if start != f64::from(UNTOUCHED) {
                    *sum += start;
                }
            }
        }
        let fill = |like: &Buffer, values: &[f64]| {
            let mut out = Buffer::new(Dtype::Fp32, like.shape, (0, 0), UNTOUCHED);
            values.iter().enumerate().for_each(|(i, &x)| out.put(i, x as f32));
            out
        };
        Data {
            o: fill(&d.o, &o),
            lse,
            grad_q: fill(&d.grad_q, &grad_q),
            grad_k: fill(&d.grad_k, &grad_k),
            grad_v: fill(&d.grad_v, &grad_v),
            ..d.clone()
        }
    }

    fn check(&self, name: &str) {
        let want = self.reference();
        let bound = |dtype| -> f64 {
            match dtype {
                Dtype::Bf16 => 5e-3,
                Dtype::Fp16 => 1e-3,
                Dtype::Fp32 => 3e-6,
            }
        };
        for (what, got, want) in [
            ("O", &self.data.o, &want.o),
            ("dQ", &self.data.grad_q, &want.grad_q),
            ("dK", &self.data.grad_k, &want.grad_k),
            ("dV", &self.data.grad_v, &want.grad_v),
        ] {
            let (mut error, mut norm) = (0.0, 0.0);
            for row in 0..got.shape.0 as i64 {
                for head in 0..got.shape.1 {
                    for d in 0..got.shape.2 {
                        let (x, y) = (got.get(row, head, d), want.get(row, head, d));
                        if y == 0.0 || y == f64::from(UNTOUCHED) {
                            assert_eq!(x, y, "{name}: {what}[{row}, {head}, {d}]");
                            continue;
                        }
                        error += (x - y) * (x - y);
                        // Where each query sees one key, dQ and dK vanish: rounding is then measured against 0.1.
                        norm += (y * y).max(0.01);
                    }
                }
            }
            // dQ in fp32 still carries the rounding of a 16-bit O.
            let bound = bound(got.dtype).max(bound(self.case.dtype));
            assert!(error <= bound * bound * norm, "{name}: {what} is off by {:e}", (error / norm).sqrt());
        }
        for (i, (x, y)) in self.data.lse.iter().zip(&want.lse).enumerate() {
            assert!(x == y || (x - y).abs() < 1e-4, "{name}: LSE[{i}] is {x}, not {y}");
        }
    }
}

fn check(name: &str, case: &Case) {
    let mut run = Run::new(case);
    run.execute();
    run.check(name);
}

fn lengths() -> Case {
    // Empty sides in every place, blocks that are full, over-full and nearly empty, and gaps.
    let q = [0, 5, 64, 70, 3, 200, 0, 1, 90];
    let kv = [(7, 0), (0, 3), (130, 2), (64, 0), (300, 1), (9, 5), (0, 0), (1, 0), (600, 7)];
    Case::new(&q, &kv)
}

fn masks() -> Vec<(&'static str, Mask)> {
    let mut masks = vec![("full", Mask::NONE)];
    for alignment in [Alignment::TopLeft, Alignment::BottomRight] {
        for (name, left, right) in [
            ("causal", None, Some(0)),
            ("window", Some(20), Some(30)),
            ("diagonal", Some(0), Some(0)),
            ("wide", Some(10_000), Some(10_000)),
            ("left", Some(40), None),
        ] {
            masks.push((name, Mask { left, right, alignment }));
        }
    }
    masks
}

#[test]
fn dtypes_masks_heads_and_layouts_agree_with_the_reference() {
    for (name, mask) in masks() {
        for (i, dtype) in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16].into_iter().enumerate() {
            for heads in [(2, 2), (4, 2), (3, 1)] {
                for broadcast in [None, Some(70)] {
                    // Layout and type of dQ vary along with the rest: all pairs are not needed.
                    let pad = if (i + heads.0) % 2 == 0 { (16, 8) } else { (0, 0) };
                    let grad_q = if heads.1 == 2 { dtype } else { Dtype::Fp32 };
                    let case = Case { dtype, grad_q, heads, mask, broadcast, pad, ..lengths() };
                    check(&format!("{name} {dtype:?} {heads:?} broadcast {broadcast:?}"), &case);
                }
            }
        }
    }
}

#[test]
fn every_head_dim_is_right() {
    for dim in (8..=256).step_by(8) {
        let mut case =
            Case { dim, heads: (1, 1), dtype: Dtype::Fp16, grad_q: Dtype::Fp16, ..Case::new(&[33], &[(47, 1)]) };
        check(&format!("head_dim {dim}"), &case);
        case.accumulate = Accumulate { grad_q: true, grad_k: true, grad_v: true };
        check(&format!("head_dim {dim}, accumulate"), &case);
    }
}

#[test]
fn gradients_are_added_to_what_is_there() {
    for bits in 1..8 {
        let accumulate = Accumulate { grad_q: bits & 1 != 0, grad_k: bits & 2 != 0, grad_v: bits & 4 != 0 };
        assert_eq!(accumulate.bits(), bits);
        for (dtype, grad_q) in [(Dtype::Fp32, Dtype::Fp32), (Dtype::Bf16, Dtype::Fp32), (Dtype::Fp16, Dtype::Fp16)] {
            for broadcast in [None, Some(70)] {
                let mask = masks()[bits as usize].1;
                let case =
                    Case { dtype, grad_q, heads: (4, 2), mask, broadcast, accumulate, pad: (16, 8), ..lengths() };
                check(&format!("{accumulate:?} {dtype:?} broadcast {broadcast:?}"), &case);
            }
        }
    }
}

#[test]
fn accumulating_nothing_changes_no_bit() {
    let accumulate = Accumulate { grad_q: true, grad_k: true, grad_v: true };
    let no_keys = Case { accumulate, ..Case::new(&[9, 40, 0], &[(0, 4), (0, 0), (300, 0)]) };
    for case in [no_keys.clone(), Case { broadcast: Some(9), len_kv: vec![(0, 4), (0, 1)], ..no_keys }] {
        let mut run = Run::new(&case);
        run.execute();
        assert_eq!(run.start, [run.data.grad_q, run.data.grad_k, run.data.grad_v]);
    }
}

#[test]
fn long_sequences_are_split_into_several_units() {
    let case = Case { dim: 8, heads: (1, 1), ..Case::new(&[70, 2, 1300], &[(2600, 0), (1100, 1), (1500, 0)]) };
    check("packed", &case);
    check("broadcast", &Case { broadcast: Some(65), ..case });
}

#[test]
fn a_batch_without_keys_or_sequences_gives_zeros() {
    check("no keys", &Case { broadcast: Some(9), ..Case::new(&[], &[(0, 4), (0, 0)]) });
    check("no keys, packed", &Case::new(&[9, 0], &[(0, 4), (0, 0)]));
    check("no sequences", &Case { broadcast: Some(9), ..Case::new(&[], &[]) });
    check("no sequences, packed", &Case::new(&[], &[]));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for broadcast in [None, Some(100)] {
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            let results = [1, 2, 3, 7].map(|workers| {
                let mut case = Case { dtype, grad_q: dtype, heads: (4, 2), broadcast, workers, ..lengths() };
                // Long enough for several units.
                case.len_q.push(100);
                case.len_kv.push((2600, 0));
                let mut run = Run::new(&case);
                run.execute();
                (run.data.o.bytes, run.data.lse, run.data.grad_q.bytes, run.data.grad_k.bytes, run.data.grad_v.bytes)
            });
            assert!(results.iter().all(|r| *r == results[0]), "{dtype:?}, broadcast {broadcast:?}");
        }
    }
}

#[test]
fn the_workspace_does_not_grow_with_the_batch() {
    for broadcast in [None, Some(512)] {
        let size = |batch: i64| {
            let mut problem = Case { broadcast, ..Case::new(&[512], &[(4096, 0)]) }.problem();
            let rows = |len| batch * len;
            let (total_q, total_kv) = (rows(512), rows(4096));
            problem.limits = Limits { batch, total_q, total_kv, ..problem.limits };
            Plan::new(problem, 2).unwrap().workspace_size()
        };
        assert_eq!(size(1 << 10), size(1 << 20));
        assert!(size(1 << 20).1 < 80 << 20);
    }
}

#[test]
fn extreme_scores_neither_overflow_nor_vanish() {
    let mut run = Run::new(&Case { mask: masks()[1].1, ..Case::new(&[80, 20], &[(300, 0), (20, 0)]) });
    for (buffer, factor) in [(&mut run.data.q, 60.0), (&mut run.data.k, 60.0)] {
        for row in 0..buffer.shape.0 as i64 {
            for head in 0..2 {
                for d in 0..16 {
                    let value = buffer.get(row, head, d) as f32 * factor;
                    buffer.put(buffer.at(row, head, d), value);
                }
            }
        }
    }
    run.execute();
    let want = run.reference();
    for row in 2..102 {
        let (x, y) = (run.data.o.get(row, 0, 3), want.o.get(row, 0, 3));
        assert!((x - y).abs() < 2e-2, "O[{row}] is {x}, not {y}");
    }
    let finite = |b: &Buffer, rows: Range<i64>| rows.into_iter().all(|row| b.get(row, 1, 5).is_finite());
    assert!(finite(&run.data.grad_q, 2..102) && finite(&run.data.grad_k, 3..323) && finite(&run.data.grad_v, 3..323));
}

#[test]
fn a_nan_stays_inside_its_sequence() {
    for (poison, broadcast) in [(f32::NAN, None), (f32::INFINITY, None), (f32::NAN, Some(70))] {
        let case = Case { mask: masks()[2].1, broadcast, ..lengths() };
        let (mut clean, mut dirty) = (Run::new(&case), Run::new(&case));
        let s = dirty.sequences[4];
        for row in s.begin_kv..s.begin_kv + s.len_kv {
            for buffer in [&mut dirty.data.k, &mut dirty.data.v] {
                buffer.put(buffer.at(row, 1, 2), poison);
            }
        }
        for row in s.begin_o..s.begin_o + s.len_q {
            dirty.data.grad_o.put(dirty.data.grad_o.at(row, 1, 2), poison);
        }
        clean.execute();
        dirty.execute();
        let inside = |row: i64, begin: i64, len: i64| (begin..begin + len).contains(&row);
        let (a, b) = (&clean.data, &dirty.data);
        for (x, y, begin, len) in [
            (&a.o, &b.o, s.begin_o, s.len_q),
            (&a.grad_k, &b.grad_k, s.begin_kv, s.len_kv),
            (&a.grad_v, &b.grad_v, s.begin_kv, s.len_kv),
            (&a.grad_q, &b.grad_q, s.begin_q, s.len_q),
        ] {
            for row in (0..x.shape.0 as i64).filter(|&row| !inside(row, begin, len)) {
                assert_eq!(x.get(row, 1, 2), y.get(row, 1, 2), "row {row}");
            }
            assert!((begin..begin + len).any(|row| y.get(row, 1, 2).is_nan()), "the poison must show");
        }
    }
}

#[test]
fn a_query_without_keys_contributes_nothing_even_as_nan() {
    let mask = Mask { left: None, right: Some(0), alignment: Alignment::BottomRight };
    let case = Case { mask, ..Case::new(&[100], &[(40, 0)]) };
    let mut run = Run::new(&case);
    // Queries 0 to 59 see no key.
    for row in 2..62 {
        for d in 0..16 {
            run.data.q.put(run.data.q.at(row, 0, d), f32::NAN);
            run.data.grad_o.put(run.data.grad_o.at(row, 0, d), f32::NAN);
        }
    }
    run.execute();
    run.check("causal");
}
