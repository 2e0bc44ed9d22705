//! The one matrix product of this backend.
//!
//! The five products of attention all have a result and a left factor that are contiguous along the same dimension,
//! once scores are stored transposed. The right factor is only broadcast, element by element, so that nothing is ever
//! packed: K and V are used where they lie.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

/// `C[n][m] = sum over k of B[k][n] * A[k][m]`, or `C += ` that: `m` is contiguous in A and C.
#[derive(Clone, Copy)]
pub(super) struct Matmul {
    /// Columns of A and C: the vector dimension.
    pub m: usize,
    /// Rows of C.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// `[k, m]`.
    pub a: *const f32,
    /// Elements from one `k` of A to the next.
    pub a_stride: usize,
    /// `[k, n]`, any strides.
    pub b: *const f32,
    /// Elements of B from one `k` to the next.
    pub b_stride_k: usize,
    /// Elements of B from one `n` to the next.
    pub b_stride_n: usize,
    /// `[n, m]`.
    pub c: *mut f32,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    /// Whether C is added to.
    pub accumulate: bool,
}

impl Matmul {
    /// Computes C.
    ///
    /// # Safety
    /// The three matrices lie in valid memory; C shares none with A and B.
    pub(super) unsafe fn run(self) {
        self.dispatch();
    }
}

impl SimdOp for Matmul {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let lanes = isa.f32().len();
        let mut m = 0;
        // SAFETY: `run` is the only way here, and its caller vouches for the memory.
        unsafe {
            while m + 2 * lanes <= self.m {
                self.panel::<I, 2>(isa, m, lanes);
                m += 2 * lanes;
            }
            while m < self.m {
                self.panel::<I, 1>(isa, m, lanes.min(self.m - m));
                m += lanes;
            }
        }
    }
}

impl Matmul {
    /// `VECTORS` vectors of columns from `m` on, for every row; the last vector has `valid` lanes.
    ///
    /// # Safety
    /// As [`Matmul::run`].
    #[inline(always)]
    unsafe fn panel<I: Isa, const VECTORS: usize>(&self, isa: I, m: usize, valid: usize) {
        let mut n = 0;
        // SAFETY: the caller's promise.
        unsafe {
            // Twelve rows of two vectors fill the registers of AVX-512, six those of AVX2.
            if isa.f32().len() >= 16 {
                while n + 12 <= self.n {
                    self.block::<I, VECTORS, 12>(isa, m, n, valid);
                    n += 12;
                }
            }
            while n + 6 <= self.n {
                self.block::<I, VECTORS, 6>(isa, m, n, valid);
                n += 6;
            }
            match self.n - n {
                1 => self.block::<I, VECTORS, 1>(isa, m, n, valid),
                2 => self.block::<I, VECTORS, 2>(isa, m, n, valid),
                3 => self.block::<I, VECTORS, 3>(isa, m, n, valid),
                4 => self.block::<I, VECTORS, 4>(isa, m, n, valid),
                5 => self.block::<I, VECTORS, 5>(isa, m, n, valid),
                _ => {}
            }
        }
    }

    /// `ROWS` rows of C in registers, over all of `k`.
    ///
    /// # Safety
    /// As [`Matmul::run`].
    #[inline(always)]
    unsafe fn block<I: Isa, const VECTORS: usize, const ROWS: usize>(&self, isa: I, m: usize, n: usize, valid: usize) {
        let f = isa.f32();
        let lanes = f.len();
        let partial = valid < lanes;
        let mask = f.first_n_mask(valid);
        let mut sum = [[f.zero(); VECTORS]; ROWS];
        // SAFETY: the caller's promise; a partial vector, always the only one, is masked.
        unsafe {
            let mut a = self.a.add(m);
            let mut b = self.b.add(n * self.b_stride_n);
            for _ in 0..self.k {
                let mut left = [f.zero(); VECTORS];
                for (v, left) in left.iter_mut().enumerate() {
                    *left = if partial { f.load_ptr_mask(a, mask) } else { f.load_ptr(a.add(v * lanes)) };
                }
                for (row, sum) in sum.iter_mut().enumerate() {
                    let right = f.splat(*b.add(row * self.b_stride_n));
                    for (sum, &left) in sum.iter_mut().zip(&left) {
                        *sum = f.mul_add(left, right, *sum);
                    }
                }
                a = a.wrapping_add(self.a_stride);
                b = b.wrapping_add(self.b_stride_k);
            }
            for (row, sum) in sum.iter().enumerate() {
                for (v, &sum) in sum.iter().enumerate() {
                    let c = self.c.add((n + row) * self.c_stride + m + v * lanes);
                    if partial {
                        let old = if self.accumulate { f.load_ptr_mask(c, mask) } else { f.zero() };
                        f.store_ptr_mask(f.add(old, sum), c, mask);
                    } else {
                        let old = if self.accumulate { f.load_ptr(c) } else { f.zero() };
                        f.store_ptr(f.add(old, sum), c);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_agrees_with_a_plain_loop() {
        for (m, n, k) in [(8, 1, 1), (16, 6, 3), (24, 5, 8), (40, 13, 7), (64, 32, 17), (56, 10, 2), (16, 0, 4)] {
            let (a_stride, c_stride) = (m + 8, m + 16);
            let value = |i: usize| ((i * 7919) % 31) as f32 - 15.0;
            let a: Vec<f32> = (0..k * a_stride).map(value).collect();
            let b: Vec<f32> = (0..k * n + 1).map(|i| value(i + 5)).collect();
            for (b_stride_k, b_stride_n) in [(n, 1), (1, k)] {
                for accumulate in [false, true] {
                    let before: Vec<f32> = (0..n * c_stride + 1).map(|i| value(i + 11)).collect();
                    let mut c = before.clone();
                    let product = Matmul {
                        m,
                        n,
                        k,
                        a: a.as_ptr(),
                        a_stride,
                        b: b.as_ptr(),
                        b_stride_k,
                        b_stride_n,
                        c: c.as_mut_ptr(),
                        c_stride,
                        accumulate,
                    };
                    // SAFETY: the vectors hold the strided matrices.
                    unsafe { product.run() };
                    let mut want = before.clone();
                    for row in 0..n {
                        for col in 0..m {
                            let term = |i: usize| a[i * a_stride + col] * b[i * b_stride_k + row * b_stride_n];
                            let sum: f32 = (0..k).map(term).sum();
                            let old = if accumulate { before[row * c_stride + col] } else { 0.0 };
                            want[row * c_stride + col] = old + sum;
                        }
                    }
                    assert_eq!(c, want, "{m} x {n} x {k}, accumulate {accumulate}");
                }
            }
        }
    }
}
