//! Merges of partial results against float64: jfa_combine() on random parts, through the ABI.

use std::time::Instant;

use jfa::capi::{jfa_combine_args, jfa_const_tensor, jfa_part, jfa_tensor};

use crate::compare::Report;
use crate::dtype::Dtype;
use crate::memory::Block;
use crate::report::Entry;
use crate::rng::Rng;
use crate::run::Outcome;
use crate::session::Target;

const GROUP: &str = "combine";
/// Bytes of results before the run, and of rows that nobody may touch: a NaN in every type.
const POISON: u8 = 0xff;
/// Largest error of an LSE, relative to its size or 1.
const LSE_TOLERANCE: f64 = 1e-6;

/// One merge.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    parts: usize,
    batch: usize,
    rows: usize,
    heads: usize,
    dim: usize,
    /// Elements between the rows beyond what the heads need, and between the heads.
    gap: usize,
    /// Heads outside, rows inside.
    heads_first: bool,
    /// LSEs are normal times this; large ones make one part win.
    spread: f32,
}

const PLAIN: Shape =
    Shape { name: "", parts: 2, batch: 1, rows: 37, heads: 2, dim: 64, gap: 0, heads_first: false, spread: 1.0 };

const SHAPES: [Shape; 10] = [
    Shape { name: "two", ..PLAIN },
    Shape { name: "one", parts: 1, ..PLAIN },
    Shape { name: "most", parts: 64, rows: 9, dim: 8, ..PLAIN },
    Shape { name: "broadcast", parts: 3, batch: 5, rows: 4, heads: 3, dim: 128, ..PLAIN },
    Shape { name: "strided", parts: 4, dim: 40, gap: 24, ..PLAIN },
    Shape { name: "heads-first", parts: 3, batch: 2, rows: 11, dim: 16, gap: 8, heads_first: true, ..PLAIN },
    Shape { name: "widest", rows: 3, dim: 256, ..PLAIN },
    Shape { name: "apart", parts: 5, spread: 200.0, ..PLAIN },
    Shape { name: "many-rows", parts: 2, rows: 1500, heads: 5, dim: 24, ..PLAIN },
    Shape { name: "no-rows", rows: 0, ..PLAIN },
];

/// Types of the parts and of the merged O.
const TYPES: [(Dtype, Dtype); 5] = [
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::Fp16, Dtype::Fp16),
    (Dtype::Fp32, Dtype::Fp32),
    (Dtype::Fp32, Dtype::Bf16),
    (Dtype::Fp32, Dtype::Fp16),
];

/// A merge with its types.
pub struct Case {
    shape: Shape,
    part: Dtype,
    dtype: Dtype,
}

/// All cases.
pub fn cases() -> Vec<Case> {
    SHAPES.into_iter().flat_map(|shape| TYPES.map(|(part, dtype)| Case { shape, part, dtype })).collect()
}

impl Case {
    /// Name with its group.
    pub fn path(&self) -> String {
        format!("{GROUP}/{}-from-{}/{}", self.shape.name, self.part.name(), self.dtype.name())
    }

    /// Runs the case.
    pub fn run(&self, target: Target, seed: u64) -> Entry {
        let begin = Instant::now();
        let mut report = Report::default();
        if let Err(text) = self.check(target, seed, &mut report) {
            report.fail(text);
        }
        let seconds = begin.elapsed().as_secs_f64();
        Entry { group: GROUP, path: self.path(), outcome: Outcome::Done(report), seconds }
    }

    fn check(&self, target: Target, seed: u64, report: &mut Report) -> Result<(), String> {
        let mut rng = Rng::new(seed, &self.path());
        let shape = &self.shape;
        let total = shape.batch * shape.rows * shape.heads;
        let mut parts = Vec::new();
        for part in 0..shape.parts {
            let (mut o, mut lse) = (Vec::new(), Vec::new());
            rng.normal(total * shape.dim, &mut o);
            rng.normal(total, &mut lse);
            o.iter_mut().for_each(|x| *x = self.part.round(*x));
            // Every seventh row has no key in some parts, every eleventh in none; their O is NaN there.
            for (i, lse) in lse.iter_mut().enumerate() {
                *lse = match (i % 7, i % 11) {
                    (_, 3) => f32::NEG_INFINITY,
                    (2, _) if (i + part) % 3 != 0 => f32::NEG_INFINITY,
                    _ => *lse * shape.spread,
                };
                if *lse == f32::NEG_INFINITY {
                    o[i * shape.dim..(i + 1) * shape.dim].fill(f32::NAN);
                }
            }
            parts.push((o, lse));
        }
        let (want_o, want_lse) = self.reference(&parts);
        let first = self.merge(target, &parts)?;
        self.compare(&first, &want_o, &want_lse, report);
        if self.merge(target, &parts)? != first {
            report.fail("a second run gave other bits");
        }
        Ok(())
    }

    /// Element of O at which row and head `index` begins; `index` counts as the LSE does, heads outside of rows.
    fn place(&self, index: usize) -> usize {
        let s = &self.shape;
        let (row_stride, head_stride) = self.strides();
        let (block, head, row) = (index / s.rows / s.heads, index / s.rows % s.heads, index % s.rows);
        (block * s.rows + row) * row_stride + head * head_stride
    }

    fn strides(&self) -> (usize, usize) {
        let s = &self.shape;
        let inner = s.dim + s.gap;
        if s.heads_first { (inner, inner * s.batch * s.rows + s.gap) } else { (inner * s.heads + s.gap, inner) }
    }

    /// Elements of a tensor with its gaps, and a guard behind it.
    fn elements(&self) -> usize {
        let s = &self.shape;
        let (row_stride, head_stride) = self.strides();
        s.batch * s.rows * row_stride + s.heads * head_stride + 64
    }

    /// The bytes of O and LSE, as one call leaves them.
    fn merge(&self, target: Target, parts: &[(Vec<f32>, Vec<f32>)]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let s = &self.shape;
        let (row_stride, head_stride) = self.strides();
        let (row_stride, head_stride) = (row_stride as i64, head_stride as i64);
        let upload = |bytes: Vec<u8>| -> Result<Block, String> {
            let block = Block::new(target.memory, bytes.len())?;
            block.write(0, &bytes)?;
            Ok(block)
        };
        let mut blocks = Vec::new();
        let mut described = Vec::new();
        for (o, lse) in parts {
            let mut image = vec![POISON; self.elements() * self.part.size()];
            for (index, piece) in o.chunks(s.dim).enumerate() {
                let mut bytes = Vec::new();
                self.part.encode(piece, &mut bytes);
                let at = self.place(index) * self.part.size();
                image[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let o = upload(image)?;
            let lse = upload(lse.iter().flat_map(|x| x.to_le_bytes()).collect())?;
            let tensor = jfa_const_tensor { data: o.at(0) as *const _, row_stride, head_stride };
            described.push(jfa_part { o: tensor, lse: lse.at(0) as *const f32 });
            blocks.extend([o, lse]);
        }
        let o_bytes = self.elements() * self.dtype.size();
        let lse_bytes = (s.batch * s.rows * s.heads + 16) * 4;
        let (o, lse) = (upload(vec![POISON; o_bytes])?, upload(vec![POISON; lse_bytes])?);
        let args = jfa_combine_args {
            struct_size: size_of::<jfa_combine_args>(),
            device_type: target.device_type,
            device_index: 0,
            dtype: self.dtype.code(),
            part_dtype: if self.part == self.dtype { 0 } else { self.part.code() },
            heads: s.heads as i32,
            head_dim: s.dim as i32,
            batch: s.batch as i64,
            rows: s.rows as i64,
            num_parts: described.len() as i64,
            parts: described.as_ptr(),
            o: jfa_tensor { data: o.at(0) as *mut _, row_stride, head_stride },
            lse: lse.at(0) as *mut f32,
        };
        // SAFETY: the tensors hold the rows that the arguments name.
        let status = unsafe { (target.api.combine)(&args, std::ptr::null_mut()) };
        target.api.expect("jfa_combine", status)?;
        let (mut o_image, mut lse_image) = (vec![0; o_bytes], vec![0; lse_bytes]);
        o.read(0, &mut o_image)?;
        lse.read(0, &mut lse_image)?;
        Ok((o_image, lse_image))
    }

    /// O and LSE in float64, in the order of the LSE.
    fn reference(&self, parts: &[(Vec<f32>, Vec<f32>)]) -> (Vec<f64>, Vec<f64>) {
        let dim = self.shape.dim;
        let total = parts[0].1.len();
        let (mut o, mut lse) = (vec![0.0; total * dim], vec![f64::NEG_INFINITY; total]);
        for i in 0..total {
            let max = parts.iter().map(|part| f64::from(part.1[i])).fold(f64::NEG_INFINITY, f64::max);
            let seen = || parts.iter().filter(|part| part.1[i] != f32::NEG_INFINITY);
            let sum: f64 = seen().map(|part| (f64::from(part.1[i]) - max).exp()).sum();
            if sum > 0.0 {
                lse[i] = max + sum.ln();
            }
            for part in seen() {
                let weight = (f64::from(part.1[i]) - lse[i]).exp();
                let source = part.0[i * dim..].iter();
                o[i * dim..(i + 1) * dim].iter_mut().zip(source).for_each(|(x, &y)| *x += weight * f64::from(y));
            }
        }
        (o, lse)
    }

    fn compare(&self, got: &(Vec<u8>, Vec<u8>), want_o: &[f64], want_lse: &[f64], report: &mut Report) {
        let (dim, size) = (self.shape.dim, self.dtype.size());
        let (mut difference, mut norm) = (0.0, 0.0);
        let mut untouched = vec![true; got.0.len()];
        for (i, want) in want_o.chunks(dim).enumerate() {
            let at = self.place(i) * size;
            untouched[at..at + dim * size].fill(false);
            let mut values = Vec::new();
            self.dtype.decode(&got.0[at..at + dim * size], &mut values);
            for (&x, &y) in values.iter().zip(want) {
                difference += (f64::from(x) - y).powi(2);
                norm += y * y;
            }
            if want_lse[i] == f64::NEG_INFINITY && values.iter().any(|&x| x != 0.0) {
                report.fail(format!("O of row {i}, which sees no key, is not 0"));
            }
        }
        if untouched.iter().zip(&got.0).any(|(&untouched, &byte)| untouched && byte != POISON) {
            report.fail("wrote outside of O");
        }
        let error = if norm > 0.0 { (difference / norm).sqrt() } else { difference.sqrt() };
        report.errors.insert("O", error);
        // NaN is no pass.
        if error.partial_cmp(&self.dtype.tolerance()) != Some(std::cmp::Ordering::Less) {
            report.fail(format!("O has the error {error:.1e}, allowed is {:.1e}", self.dtype.tolerance()));
        }
        let (lse, guard) = got.1.split_at(want_lse.len() * 4);
        if guard.iter().any(|&byte| byte != POISON) {
            report.fail("wrote behind the LSE");
        }
        let mut worst = 0.0f64;
        for (i, (bytes, &want)) in lse.as_chunks().0.iter().zip(want_lse).enumerate() {
            let value = f64::from(f32::from_le_bytes(*bytes));
            let error = (value - want).abs() / want.abs().max(1.0);
            if value != want && error.partial_cmp(&LSE_TOLERANCE) != Some(std::cmp::Ordering::Less) {
                report.fail(format!("LSE of row {i} is {value}, not {want}"));
                return;
            }
            worst = if value == want { worst } else { worst.max(error) };
        }
        report.errors.insert("LSE", worst);
    }
}
