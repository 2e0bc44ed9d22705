//! Rows of tensors as fp32: conversion, transposition, and the way back.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rten_simd::{Isa, SimdOp};

use super::scores::{padded, scratch_stride};
use crate::plan::Tensor;

/// An element type that rows can be read from and written to.
pub(super) trait Element: Copy + Send + Sync + 'static {
    /// Whether rows are fp32 already and can be used in place.
    const NATIVE: bool = false;

    /// fp32 values of `source`.
    fn load(source: &[Self], out: &mut [f32]);

    /// `source * scale`, rounded once.
    fn store(source: &[f32], scale: f32, out: &mut [Self]);

    /// `out + source * scale`, rounded once.
    #[inline(always)]
    fn add(source: &[f32], scale: f32, out: &mut [Self]) {
        let mut sums = [0.0; 64];
        for (source, out) in source.chunks(64).zip(out.chunks_mut(64)) {
            let sums = &mut sums[..source.len()];
            Self::load(out, sums);
            for (sum, x) in sums.iter_mut().zip(source) {
                *sum += x * scale;
            }
            Self::store(sums, 1.0, out);
        }
    }
}

impl Element for f32 {
    const NATIVE: bool = true;

    #[inline(always)]
    fn load(source: &[f32], out: &mut [f32]) {
        out.copy_from_slice(source);
    }

    #[inline(always)]
    fn store(source: &[f32], scale: f32, out: &mut [f32]) {
        for (out, x) in out.iter_mut().zip(source) {
            *out = x * scale;
        }
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn load(source: &[bf16], out: &mut [f32]) {
        for (out, x) in out.iter_mut().zip(source) {
            *out = f32::from_bits(u32::from(x.to_bits()) << 16);
        }
    }

    #[inline(always)]
    fn store(source: &[f32], scale: f32, out: &mut [bf16]) {
        // Without a branch, so that it becomes vector code: nearest, ties to even; a NaN stays one.
        for (out, x) in out.iter_mut().zip(source) {
            let x = x * scale;
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
            let bits = if x.is_nan() { bits | 0x0040_0000 } else { rounded };
            *out = bf16::from_bits((bits >> 16) as u16);
        }
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load(source: &[f16], out: &mut [f32]) {
        source.convert_to_f32_slice(out);
    }

    #[inline(always)]
    fn store(source: &[f32], scale: f32, out: &mut [f16]) {
        let mut scaled = [0.0; 64];
        for (source, out) in source.chunks(64).zip(out.chunks_mut(64)) {
            let scaled = &mut scaled[..source.len()];
            f32::store(source, scale, scaled);
            out.convert_from_f32_slice(scaled);
        }
    }
}

/// Rows of one head, `[rows, head_dim]` with a row stride.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    /// First element.
    pub data: *mut T,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl<T> Rows<T> {
    /// The rows of `tensor` from `row` on, of `head`.
    pub(super) fn new(tensor: &Tensor, row: i64, head: u32) -> Self {
        let offset = row * tensor.row_stride + i64::from(head) * tensor.head_stride;
        Rows { data: tensor.data.cast::<T>().wrapping_offset(offset as isize), stride: tensor.row_stride as usize }
    }

    /// The rows from `row` on.
    pub(super) fn skip(self, row: usize) -> Self {
        Rows { data: self.data.wrapping_add(row * self.stride), ..self }
    }
}

impl<T: Element> Rows<T> {
    /// The first `rows` rows as fp32: in place where they are fp32, else converted into `scratch`.
    ///
    /// # Safety
    /// The rows are readable, `scratch` holds `rows * scratch_stride(dim)` values.
    pub(super) unsafe fn to_f32(self, rows: usize, dim: usize, scratch: *mut f32) -> Rows<f32> {
        if T::NATIVE {
            return Rows { data: self.data.cast(), stride: self.stride };
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy(rows, dim, scratch) }
    }

    /// The first `rows` rows as fp32 in `scratch`, in a layout that is kind to the cache.
    ///
    /// # Safety
    /// As [`Rows::to_f32`].
    pub(super) unsafe fn copy(self, rows: usize, dim: usize, scratch: *mut f32) -> Rows<f32> {
        let out = Rows { data: scratch, stride: scratch_stride(dim) };
        Load { rows: self, count: rows, dim, out }.dispatch();
        out
    }
}

impl Rows<f32> {
    /// Writes the first `rows` rows, times `scale`, to `out`, or adds them to what it holds.
    ///
    /// # Safety
    /// These rows are readable, those of `out` writable.
    pub(super) unsafe fn store<T: Element>(self, rows: usize, dim: usize, scale: f32, out: Rows<T>, add: bool) {
        Store { rows: self, count: rows, dim, scale: |_| scale, out, add }.dispatch();
    }

    /// Writes the first `rows` rows, each divided by its own divisor, to `out`.
    ///
    /// # Safety
    /// These rows and as many divisors are readable, the rows of `out` writable.
    pub(super) unsafe fn divide<T: Element>(self, rows: usize, dim: usize, divisors: *const f32, out: Rows<T>) {
        // SAFETY: the caller's promise.
        let divisors = unsafe { std::slice::from_raw_parts(divisors, rows) };
        Store { rows: self, count: rows, dim, scale: |row: usize| 1.0 / divisors[row], out, add: false }.dispatch();
    }

    /// Multiplies each of the first `rows` rows by its own factor, in place.
    ///
    /// # Safety
    /// The rows are writable, as many factors readable.
    pub(super) unsafe fn multiply(self, rows: usize, dim: usize, factors: *const f32) {
        Multiply { rows: self, count: rows, dim, factors }.dispatch();
    }

    /// Adds the first `rows` rows of `other`.
    ///
    /// # Safety
    /// These rows are writable, those of `other` readable and elsewhere.
    pub(super) unsafe fn add(self, other: Rows<f32>, rows: usize, dim: usize) {
        Add { rows: self, other, count: rows, dim }.dispatch();
    }

    /// `[dim, scratch_stride(rows)]` from `[rows, dim]`, times `scale`; columns up to `padded(rows)` become 0.
    ///
    /// # Safety
    /// The rows are readable, `out` holds `dim * scratch_stride(rows)` values.
    pub(super) unsafe fn transpose(self, rows: usize, dim: usize, scale: f32, out: *mut f32) {
        Transpose { rows: self, count: rows, dim, scale, out }.dispatch();
    }

    /// Sum over each row of the product with the row of `other`, into `out`.
    ///
    /// # Safety
    /// The rows are readable, `out` holds `rows` values.
    pub(super) unsafe fn dot(self, other: Rows<f32>, rows: usize, dim: usize, out: *mut f32) {
        Dot { rows: self, other, count: rows, dim, out }.dispatch();
    }
}

/// Writes zeros to `count` rows.
///
/// # Safety
/// The rows are writable.
pub(super) unsafe fn zero<T: Element>(rows: Rows<T>, count: usize, dim: usize) {
    for row in 0..count {
        // SAFETY: the caller's promise; all-zero bytes are 0 in every element type.
        unsafe { rows.skip(row).data.write_bytes(0, dim) };
    }
}

struct Load<T> {
    rows: Rows<T>,
    count: usize,
    dim: usize,
    out: Rows<f32>,
}

impl<T: Element> SimdOp for Load<T> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in 0..self.count {
            // SAFETY: the promise of `to_f32`.
            unsafe {
                let source = std::slice::from_raw_parts(self.rows.skip(row).data, self.dim);
                T::load(source, std::slice::from_raw_parts_mut(self.out.skip(row).data, self.dim));
            }
        }
    }
}

struct Store<T, S> {
    rows: Rows<f32>,
    count: usize,
    dim: usize,
    scale: S,
    out: Rows<T>,
    add: bool,
}

impl<T: Element, S: Fn(usize) -> f32> SimdOp for Store<T, S> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in 0..self.count {
            // SAFETY: the promise of `store`.
            unsafe {
                let source = std::slice::from_raw_parts(self.rows.skip(row).data, self.dim);
                let out = std::slice::from_raw_parts_mut(self.out.skip(row).data, self.dim);
                if self.add {
                    T::add(source, (self.scale)(row), out);
                } else {
                    T::store(source, (self.scale)(row), out);
                }
            }
        }
    }
}

struct Multiply {
    rows: Rows<f32>,
    count: usize,
    dim: usize,
    factors: *const f32,
}

impl SimdOp for Multiply {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in 0..self.count {
            // SAFETY: the promise of `multiply`.
            unsafe {
                let factor = *self.factors.add(row);
                // Most rows keep their maximum; a NaN is not equal to 1 and gets through.
                if factor != 1.0 {
                    for x in std::slice::from_raw_parts_mut(self.rows.skip(row).data, self.dim) {
                        *x *= factor;
                    }
                }
            }
        }
    }
}

struct Add {
    rows: Rows<f32>,
    other: Rows<f32>,
    count: usize,
    dim: usize,
}

impl SimdOp for Add {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in 0..self.count {
            // SAFETY: the promise of `add`.
            unsafe {
                let other = std::slice::from_raw_parts(self.other.skip(row).data, self.dim);
                let out = std::slice::from_raw_parts_mut(self.rows.skip(row).data, self.dim);
                for (x, y) in out.iter_mut().zip(other) {
                    *x += y;
                }
            }
        }
    }
}

struct Transpose {
    rows: Rows<f32>,
    count: usize,
    dim: usize,
    scale: f32,
    out: *mut f32,
}

impl SimdOp for Transpose {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let stride = scratch_stride(self.count);
        // SAFETY: the promise of `transpose`.
        unsafe {
            for begin in (0..padded(self.count)).step_by(8) {
                for d in 0..self.dim {
                    let out = self.out.add(d * stride + begin);
                    for i in 0..8 {
                        let row = begin + i;
                        let value = if row < self.count { *self.rows.skip(row).data.add(d) * self.scale } else { 0.0 };
                        *out.add(i) = value;
                    }
                }
            }
        }
    }
}

struct Dot {
    rows: Rows<f32>,
    other: Rows<f32>,
    count: usize,
    dim: usize,
    out: *mut f32,
}

impl SimdOp for Dot {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in 0..self.count {
            // SAFETY: the promise of `dot`.
            unsafe {
                let a = std::slice::from_raw_parts(self.rows.skip(row).data, self.dim);
                let b = std::slice::from_raw_parts(self.other.skip(row).data, self.dim);
                let mut sums = [0.0f32; 8];
                for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
                    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                        *sum += a * b;
                    }
                }
                *self.out.add(row) = sums.iter().sum();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_the_reference_does() {
        // Every upper half, with lower halves on, below and above the tie.
        let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        let values: Vec<f32> =
            (0..=0xffff_u32).flat_map(|upper| lower.map(|lower| f32::from_bits(upper << 16 | lower))).collect();
        let mut out = vec![bf16::ZERO; values.len()];
        bf16::store(&values, 1.0, &mut out);
        let mut back = vec![0.0; values.len()];
        bf16::load(&out, &mut back);
        for ((x, y), back) in values.iter().zip(&out).zip(&back) {
            if x.is_nan() {
                assert!(y.is_nan() && back.is_nan(), "{:#x}", x.to_bits());
            } else {
                assert_eq!(y.to_bits(), bf16::from_f32(*x).to_bits(), "{x}");
                assert_eq!(*back, y.to_f32());
            }
        }
    }
}
