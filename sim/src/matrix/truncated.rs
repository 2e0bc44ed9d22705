//! Products as the tensor cores of Hopper form them.
//!
//! The ISA leaves order and rounding of the sums open. Measured on an H200 with random operands of all types, and equal
//! to the bit there: the k products of an instruction and the old D are exact; all are aligned to the largest exponent
//! among them, that of a product being the sum of its factors' exponents; what lies more than `fraction` bits below is
//! cut off from each; the sum of what remains is exact, and rounded once.

use half::f16;

/// Exponent that stands for a zero.
const ZERO: i32 = -4096;
/// Columns that are computed together.
const WIDTH: usize = 16;
type Floats = [f32; WIDTH];
type Ints = [i32; WIDTH];
/// Exponents between which products of f32 are exact and scales are normal.
const SAFE: std::ops::RangeInclusive<i32> = -90..=96;

/// How a sum of products is cut and rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Bits kept below the largest exponent.
    pub fraction: i32,
    /// How the sum becomes D.
    pub result: Rounded,
    /// Exponent of the subnormals of A's type, which are not normalised.
    pub min_exponent_a: i32,
    /// That of B's.
    pub min_exponent_b: i32,
}

/// Rounding of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounded {
    /// To f32 toward zero, with this many bits of significand. Overflow gives infinity.
    F32(u32),
    /// To the nearest f16, ties to even.
    F16,
}

/// floor(log2 |x|), not below `least`.
#[inline(always)]
fn exponent(x: f32, least: i32) -> i32 {
    // In integers, because comparisons of floats do not vectorise here.
    let bits = x.to_bits() & 0x7FFF_FFFF;
    let zero = if bits == 0 { ZERO - least } else { 0 };
    ((bits >> 23) as i32 - 127).max(least) + zero
}

impl Truncated {
    /// c[m x n] = a[m x k] b[k x n] + c, row-major, n a multiple of 8, k at most 32.
    pub fn multiply(&self, n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
        if n == 0 || k == 0 {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has the feature.
            return unsafe { self.multiply_avx2(n, k, a, b, c) };
        }
        self.multiply_with(n, k, a, b, c, inner::largest_exponents, inner::scaled_sums);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn multiply_avx2(&self, n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
        let largest = |ea: &[i32], eb: &[Ints], most: &mut Ints| inner::largest_exponents_avx2(ea, eb, most);
        let sums = |a: &[f32], b: &[Floats], scales: &Floats| inner::scaled_sums_avx2(a, b, scales);
        self.multiply_with(n, k, a, b, c, largest, sums);
    }

    #[expect(clippy::too_many_arguments, reason = "the two inner loops, which depend on the CPU")]
    #[inline(always)]
    fn multiply_with(
        &self,
        n: usize,
        k: usize,
        a: &[f32],
        b: &[f32],
        c: &mut [f32],
        largest_exponents: impl Fn(&[i32], &[Ints], &mut Ints),
        scaled_sums: impl Fn(&[f32], &[Floats], &Floats) -> Ints,
    ) {
        let exponents: Vec<i32> = a.iter().map(|x| exponent(*x, self.min_exponent_a)).collect();
        // Columns in blocks of WIDTH, each k rows deep; zeros beyond the last column.
        let mut columns = vec![[0f32; WIDTH]; n.div_ceil(WIDTH) * k];
        for (kk, row) in b.chunks_exact(n).take(k).enumerate() {
            for (block, values) in row.chunks(WIDTH).enumerate() {
                columns[block * k + kk][..values.len()].copy_from_slice(values);
            }
        }
        let of_columns: Vec<Ints> = columns.iter().map(|row| row.map(|x| exponent(x, self.min_exponent_b))).collect();
        let most = |exponents: &[i32]| exponents.iter().copied().max().unwrap_or(ZERO);
        let (most_a, most_b) = (most(&exponents), most(of_columns.as_flattened()));
        // Infinity and NaN have the exponent 128; times zero they would pass for small.
        let safe = most_a.max(most_b) < 128 && most_a + most_b <= *SAFE.end();
        for ((a, ea), c) in a.chunks_exact(k).zip(exponents.chunks_exact(k)).zip(c.chunks_exact_mut(n)) {
            for ((b, eb), c) in columns.chunks_exact(k).zip(of_columns.chunks_exact(k)).zip(c.chunks_mut(WIDTH)) {
                let mut d = [0f32; WIDTH];
                match c.first_chunk::<WIDTH>() {
                    Some(c) => d = *c,
                    None => d[..c.len()].copy_from_slice(c),
                }
                if safe && self.block(a, ea, b, eb, &mut d, &largest_exponents, &scaled_sums) {
                    match c.first_chunk_mut::<WIDTH>() {
                        Some(c) => *c = d,
                        None => c.copy_from_slice(&d[..c.len()]),
                    }
                    continue;
                }
                for (j, c) in c.iter_mut().enumerate() {
                    let terms = (0..k).map(|kk| (a[kk], b[kk][j], ea[kk] + eb[kk][j]));
                    *c = self.element(terms, *c);
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the two inner loops, which depend on the CPU")]
    /// One row by a block of columns, if all exponents are safe; otherwise nothing is done and the answer is false.
    #[inline(always)]
    fn block(
        &self,
        a: &[f32],
        ea: &[i32],
        b: &[Floats],
        eb: &[Ints],
        c: &mut Floats,
        largest_exponents: impl Fn(&[i32], &[Ints], &mut Ints),
        scaled_sums: impl Fn(&[f32], &[Floats], &Floats) -> Ints,
    ) -> bool {
        let mut most = [0; WIDTH];
        most.iter_mut().zip(c.iter()).for_each(|(most, c)| *most = exponent(*c, -126));
        largest_exponents(ea, eb, &mut most);
        // Sums of nothing but zeros are safe at any scale.
        let outside = |e: i32| e > *SAFE.end() || (e < *SAFE.start() && e > ZERO + 256);
        if most.iter().fold(false, |any, e| any | outside(*e)) {
            return false;
        }
        most.iter_mut().for_each(|e| *e = (*e).max(*SAFE.start()));
        let mut scales = [0f32; WIDTH];
        for (scale, e) in scales.iter_mut().zip(&most) {
            *scale = f32::from_bits(((127 + self.fraction - e) as u32) << 23);
        }
        // Two sums of at most 16 terms below 2^(fraction + 2): each fits.
        let half = a.len().div_ceil(2);
        let (low, high) = a.split_at(half);
        let (low, high) = (scaled_sums(low, b, &scales), scaled_sums(high, &b[half..], &scales));
        let mut old = [0i32; WIDTH];
        for ((old, c), scale) in old.iter_mut().zip(c.iter()).zip(&scales) {
            // SAFETY: the old value is finite and below 2 * 2^most, so that the scaled one is below 2^26.
            *old = unsafe { (c * scale).to_int_unchecked::<i32>() };
        }
        let mut sums = [0f64; WIDTH];
        for (((sum, low), high), old) in sums.iter_mut().zip(low).zip(high).zip(old) {
            *sum = low as f64 + high as f64 + old as f64;
        }
        match self.result {
            Rounded::F32(bits) => {
                for ((c, sum), e) in c.iter_mut().zip(sums).zip(most) {
                    *c = cut_to_f32(sum, bits, e - self.fraction);
                }
            }
            Rounded::F16 => {
                for ((c, sum), e) in c.iter_mut().zip(sums).zip(most) {
                    *c = self.round(sum, e - self.fraction);
                }
            }
        }
        true
    }

    /// One element, whatever its operands.
    fn element(&self, terms: impl Iterator<Item = (f32, f32, i32)> + Clone, c: f32) -> f32 {
        let mut ieee = c as f64;
        let mut most = exponent(c, -126);
        for (a, b, exponent) in terms.clone() {
            ieee += a as f64 * b as f64;
            most = if a == 0.0 || b == 0.0 { most } else { most.max(exponent) };
        }
        if !ieee.is_finite() {
            return if ieee.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { ieee as f32 };
        }
        if most <= ZERO {
            return 0.0;
        }
        let scale = power(self.fraction - most);
        let cut = |value: f64| (value * scale).trunc();
        let sum = terms.map(|(a, b, _)| cut(a as f64 * b as f64)).sum::<f64>() + cut(c as f64);
        self.round(sum, most - self.fraction)
    }

    /// `sum` * 2^`exponent`, rounded.
    #[inline(always)]
    fn round(&self, sum: f64, exponent: i32) -> f32 {
        match self.result {
            Rounded::F32(bits) => cut_to_f32(sum, bits, exponent),
            Rounded::F16 => f16::from_f64(sum * power(exponent)).to_f32(),
        }
    }
}

/// Cutting bits of the significand rounds toward zero.
#[inline(always)]
fn cut_to_f32(sum: f64, bits: u32, exponent: i32) -> f32 {
    let kept = f64::from_bits(sum.to_bits() & (u64::MAX << (53 - bits)));
    (kept * power(exponent)) as f32
}

/// 2^e for e in -1022 to 1023.
#[inline(always)]
fn power(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// The inner loops, portable and with AVX2: compilers vectorise the former along k, by gathering.
mod inner {
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::*;

    use super::{Floats, Ints};

    /// most = max(most, ea + eb) over k.
    pub(super) fn largest_exponents(ea: &[i32], eb: &[Ints], most: &mut Ints) {
        for (ea, eb) in ea.iter().zip(eb) {
            most.iter_mut().zip(eb).for_each(|(most, eb)| *most = (*most).max(ea + eb));
        }
    }

    /// Sums over k of the scaled products, each cut to an integer. The scales keep products below 2^27.
    pub(super) fn scaled_sums(a: &[f32], b: &[Floats], scales: &Floats) -> Ints {
        let mut sums = [0; super::WIDTH];
        for (a, b) in a.iter().zip(b) {
            sums.iter_mut().zip(b).zip(scales).for_each(|((sum, b), scale)| *sum += (a * b * scale) as i32);
        }
        sums
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    pub(super) fn largest_exponents_avx2(ea: &[i32], eb: &[Ints], most: &mut Ints) {
        // SAFETY: all pointers are to the halves of arrays of 16.
        unsafe {
            let mut low = _mm256_loadu_si256(most.as_ptr().cast());
            let mut high = _mm256_loadu_si256(most.as_ptr().add(8).cast());
            for (ea, eb) in ea.iter().zip(eb) {
                let ea = _mm256_set1_epi32(*ea);
                low = _mm256_max_epi32(low, _mm256_add_epi32(ea, _mm256_loadu_si256(eb.as_ptr().cast())));
                high = _mm256_max_epi32(high, _mm256_add_epi32(ea, _mm256_loadu_si256(eb.as_ptr().add(8).cast())));
            }
            _mm256_storeu_si256(most.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(most.as_mut_ptr().add(8).cast(), high);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    pub(super) fn scaled_sums_avx2(a: &[f32], b: &[Floats], scales: &Floats) -> Ints {
        let mut out = [0; super::WIDTH];
        // SAFETY: all pointers are to the halves of arrays of 16.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(scales.as_ptr()), _mm256_loadu_ps(scales.as_ptr().add(8)));
            let (mut low_sum, mut high_sum) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            for (a, b) in a.iter().zip(b) {
                let a = _mm256_set1_ps(*a);
                let low = _mm256_mul_ps(_mm256_mul_ps(a, _mm256_loadu_ps(b.as_ptr())), low);
                let high = _mm256_mul_ps(_mm256_mul_ps(a, _mm256_loadu_ps(b.as_ptr().add(8))), high);
                low_sum = _mm256_add_epi32(low_sum, _mm256_cvttps_epi32(low));
                high_sum = _mm256_add_epi32(high_sum, _mm256_cvttps_epi32(high));
            }
            _mm256_storeu_si256(out.as_mut_ptr().cast(), low_sum);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), high_sum);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: Truncated =
        Truncated { fraction: 25, result: Rounded::F32(24), min_exponent_a: -126, min_exponent_b: -126 };

    fn value(i: usize, spread: i32) -> f32 {
        let hash = (i as u32 ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9) ^ (i as u32) << 7;
        let exponent = (hash >> 20) as i32 % (2 * spread + 1) - spread;
        let significand = 128 + (hash & 0x7F);
        let magnitude = significand as f32 * 2f32.powi(exponent - 7);
        if hash & 0x400 == 0 { magnitude } else { -magnitude }
    }

    /// The vector path and the path of single elements are the same function.
    #[test]
    fn both_paths_agree() {
        for (spread, k) in [(0, 16), (3, 16), (12, 16), (30, 8), (5, 32)] {
            let fraction = if k == 32 { 13 } else { 25 };
            let model = Truncated { fraction, ..BF16 };
            let (m, n) = (4, 24);
            let a: Vec<f32> = (0..m * k).map(|i| if i % 7 == 0 { 0.0 } else { value(i, spread) }).collect();
            let b: Vec<f32> = (0..k * n).map(|i| value(i + 1000, spread)).collect();
            let c: Vec<f32> =
                (0..m * n).map(|i| if i % 5 == 0 { 0.0 } else { value(i + 7000, 2 * spread) * 1.0001 }).collect();
            let mut fast = c.clone();
            model.multiply(n, k, &a, &b, &mut fast);
            for (at, fast) in fast.into_iter().enumerate() {
                let terms = (0..k).map(|kk| {
                    let (x, y) = (a[at / n * k + kk], b[kk * n + at % n]);
                    (x, y, exponent(x, -126) + exponent(y, -126))
                });
                assert_eq!(fast.to_bits(), model.element(terms, c[at]).to_bits(), "{spread} {k} {at}");
            }
        }
    }

    #[test]
    fn what_lies_too_low_is_cut() {
        let sum = |model: Truncated, a: [f32; 2], c: f32| {
            let mut d = [c; 8];
            model.multiply(8, 2, &a, &[1.0; 16], &mut d);
            d[0]
        };
        // Below 2^-25 of the largest nothing counts; what is kept adds up before the result is cut to 24 bits.
        assert_eq!(sum(BF16, [2f32.powi(-24), 2f32.powi(-24)], 1.0), 1.0 + 2f32.powi(-23));
        assert_eq!(sum(BF16, [2f32.powi(-25), 2f32.powi(-25)], 1.0), 1.0);
        assert_eq!(sum(BF16, [2f32.powi(-26), 2f32.powi(-26)], -1.0), -1.0);
        assert_eq!(sum(BF16, [1.0, -2f32.powi(-25)], 0.0), 1.0 - 2f32.powi(-24));
        assert_eq!(sum(BF16, [0.0, 0.0], 0.0), 0.0);
        assert_eq!(sum(BF16, [0.0, 0.0], 1e-40), 1e-40);
        assert_eq!(sum(BF16, [f32::INFINITY, 1.0], 1.0), f32::INFINITY);
        assert!(sum(BF16, [f32::INFINITY, f32::NEG_INFINITY], 1.0).is_nan());
        assert_eq!(sum(BF16, [f32::MAX, f32::MAX], 0.0), f32::INFINITY);
        let mut zeros = [1.0; 16];
        BF16.multiply(16, 1, &[f32::INFINITY], &[0.0; 16], &mut zeros);
        assert!(zeros.iter().all(|d| d.is_nan()));
        let f16 = Truncated { result: Rounded::F16, ..BF16 };
        assert_eq!(sum(f16, [2048.0, 1.0], 0.0), 2048.0);
        assert_eq!(sum(f16, [2050.0, 1.0], 0.0), 2052.0);
    }
}
