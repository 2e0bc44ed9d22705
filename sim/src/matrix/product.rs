//! Blocked products of row-major tiles.
//!
//! Hardware leaves order and rounding of the sums open; here every product and sum is rounded to f32, in ascending k.
//! Products of 16-bit, tf32 and smaller elements are exact in f32 unless they leave its range.

/// c[m x n] += a[m x k] b[k x n].
///
/// Lengths: `a` m k, `b` k n, `c` m n; n is a multiple of 8.
pub fn multiply_f32(n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has the feature.
        return unsafe { multiply_f32_avx2(n, k, a, b, c) };
    }
    blocked(n, k, a, b, c, |c, a, b| c + a * b);
}

/// As [`multiply_f32`], on integers that wrap.
pub fn multiply_s32(n: usize, k: usize, a: &[i32], b: &[i32], c: &mut [i32]) {
    blocked(n, k, a, b, c, |c, a, b| c.wrapping_add(a.wrapping_mul(b)));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_f32_avx2(n: usize, k: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    // Without the fma feature the results are those of the portable code, bit for bit.
    blocked(n, k, a, b, c, |c, a, b| c + a * b);
}

#[inline(always)]
fn blocked<T: Copy>(n: usize, k: usize, a: &[T], b: &[T], c: &mut [T], fma: impl Fn(T, T, T) -> T + Copy) {
    if n == 0 || k == 0 {
        return;
    }
    for (a, c) in a.chunks(4 * k).zip(c.chunks_mut(4 * n)) {
        if c.len() == 4 * n {
            let mut j = 0;
            while j + 16 <= n {
                block::<T, 4, 16>(n, k, j, a, b, c, fma);
                j += 16;
            }
            while j + 8 <= n {
                block::<T, 4, 8>(n, k, j, a, b, c, fma);
                j += 8;
            }
        } else {
            for (a, c) in a.chunks(k).zip(c.chunks_mut(n)) {
                for j in (0..n).step_by(8) {
                    block::<T, 1, 8>(n, k, j, a, b, c, fma);
                }
            }
        }
    }
}

#[inline(always)]
fn block<T: Copy, const M: usize, const N: usize>(
    n: usize,
    k: usize,
    j: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
    fma: impl Fn(T, T, T) -> T + Copy,
) {
    let mut sums = [[c[0]; N]; M];
    for (i, sums) in sums.iter_mut().enumerate() {
        sums.copy_from_slice(&c[i * n + j..i * n + j + N]);
    }
    for (kk, row) in b.chunks_exact(n).take(k).enumerate() {
        let row = &row[j..j + N];
        for (i, sums) in sums.iter_mut().enumerate() {
            let factor = a[i * k + kk];
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum = fma(*sum, factor, value);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        c[i * n + j..i * n + j + N].copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(m: usize, n: usize, k: usize, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
        let mut out = c.to_vec();
        for i in 0..m {
            for j in 0..n {
                for kk in 0..k {
                    out[i * n + j] += a[i * k + kk] * b[kk * n + j];
                }
            }
        }
        out
    }

    #[test]
    fn equals_the_naive_loop_to_the_bit() {
        for (m, n, k) in [(64, 128, 16), (64, 8, 16), (64, 24, 8), (3, 40, 32), (1, 8, 1), (6, 16, 5)] {
            let value = |i: usize| ((i * 7919 % 1009) as f32 - 500.0) / 64.0;
            let a: Vec<f32> = (0..m * k).map(value).collect();
            let b: Vec<f32> = (0..k * n).map(|i| value(i + 17)).collect();
            let c: Vec<f32> = (0..m * n).map(|i| value(i * 3 + 5) * 1e3).collect();
            let mut got = c.clone();
            multiply_f32(n, k, &a, &b, &mut got);
            assert_eq!(got, naive(m, n, k, &a, &b, &c), "{m} {n} {k}");
            let int = |v: &[f32]| v.iter().map(|x| *x as i32).collect::<Vec<_>>();
            let (a, b, mut c) = (int(&a), int(&b), int(&c));
            let want = c
                .iter()
                .enumerate()
                .map(|(at, c)| (0..k).map(|kk| a[at / n * k + kk] * b[kk * n + at % n]).sum::<i32>() + c);
            let want: Vec<i32> = want.collect();
            multiply_s32(n, k, &a, &b, &mut c);
            assert_eq!(c, want);
        }
    }
}
