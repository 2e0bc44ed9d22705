//! The merge of partial results on the threads of this process.

use half::{bf16, f16};
use rten_simd::{Isa, SimdOp};

use super::rows::{Element, Rows};
use super::threads::Threads;
use crate::combine::{Combine, MAX_PARTS};
use crate::error::Result;
use crate::problem::{Dtype, MAX_HEAD_DIM};

/// Elements that a worker merges at a time.
const BLOCK_ELEMENTS: i64 = 1 << 14;

/// Merges the parts of a checked call.
///
/// # Safety
/// The pointers are host memory that holds the rows of the call.
///
/// # Errors
/// `OutOfMemory` if threads cannot be started.
pub(crate) unsafe fn combine(call: &Combine) -> Result<()> {
    let threads = Threads::new(0)?;
    // SAFETY: the caller's promise.
    unsafe {
        match (call.part_dtype, call.dtype) {
            (Dtype::Fp32, Dtype::Bf16) => run::<f32, bf16>(call, &threads),
            (Dtype::Fp32, Dtype::Fp16) => run::<f32, f16>(call, &threads),
            (_, Dtype::Bf16) => run::<bf16, bf16>(call, &threads),
            (_, Dtype::Fp16) => run::<f16, f16>(call, &threads),
            (_, Dtype::Fp32) => run::<f32, f32>(call, &threads),
        }
    }
    Ok(())
}

/// # Safety
/// As [`combine`]; the types are those of the call.
unsafe fn run<P: Element, T: Element>(call: &Combine, threads: &Threads) {
    let rows = call.total_rows();
    let block = (BLOCK_ELEMENTS / (i64::from(call.heads) * i64::from(call.head_dim))).max(1);
    // Raw pointers of the call are shared by the workers, whose rows are disjoint.
    let shared = Shared(call);
    threads.for_each(((rows + block - 1) / block) as usize, |_, index| {
        let begin = index as i64 * block;
        Merge::<P, T> { call: shared.get(), rows: begin..(begin + block).min(rows), types: Default::default() }
            .dispatch();
    });
}

struct Shared<'a>(&'a Combine);

// SAFETY: the description is only read, and each worker touches rows of its own.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn get(&self) -> &'a Combine {
        self.0
    }
}

struct Merge<'a, P, T> {
    call: &'a Combine,
    rows: std::ops::Range<i64>,
    types: std::marker::PhantomData<(P, T)>,
}

impl<P: Element, T: Element> SimdOp for Merge<'_, P, T> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let call = self.call;
        let dim = call.head_dim as usize;
        let mut values = [0.0f32; MAX_HEAD_DIM as usize];
        let mut sums = [0.0f32; MAX_HEAD_DIM as usize];
        let (values, sums) = (&mut values[..dim], &mut sums[..dim]);
        for row in self.rows {
            for head in 0..call.heads {
                let block = row / call.rows * i64::from(call.heads) + i64::from(head);
                let at = (block * call.rows + row % call.rows) as usize;
                // SAFETY: the promise of `combine`.
                let lse = call.parts.iter().map(|part| unsafe { *part.lse.add(at) });
                let (weights, merged) = weigh(lse);
                sums.fill(0.0);
                for (part, &weight) in call.parts.iter().zip(&weights) {
                    // A part without keys has nothing to say; what its O holds does not matter. NaN is not 0.
                    if weight == 0.0 {
                        continue;
                    }
                    // SAFETY: the promise of `combine`.
                    let source = unsafe {
                        std::slice::from_raw_parts(Rows::<P>::new(&part.o, row, head as u32).data.cast_const(), dim)
                    };
                    P::load(source, values);
                    for (sum, value) in sums.iter_mut().zip(values.iter()) {
                        *sum += weight * value;
                    }
                }
                // SAFETY: the promise of `combine`; no other worker has this row.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(Rows::<T>::new(&call.o, row, head as u32).data, dim);
                    T::store(sums, 1.0, out);
                    if !call.lse.is_null() {
                        *call.lse.add(at) = merged;
                    }
                }
            }
        }
    }
}

/// The weight of each part of one row, and the merged LSE.
fn weigh(lse: impl Iterator<Item = f32> + Clone) -> ([f32; MAX_PARTS], f32) {
    let mut weights = [0.0; MAX_PARTS];
    // `max` passes over NaN; the weight of that part is NaN nevertheless, and so is the sum.
    let max = lse.clone().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for (weight, lse) in weights.iter_mut().zip(lse) {
        *weight = if lse == f32::NEG_INFINITY { 0.0 } else { (lse - max).exp() };
        sum += *weight;
    }
    if sum == 0.0 {
        return (weights, f32::NEG_INFINITY);
    }
    weights.iter_mut().for_each(|weight| *weight /= sum);
    (weights, max + sum.ln())
}

#[cfg(test)]
mod tests {
    use super::weigh;

    const NONE: f32 = f32::NEG_INFINITY;

    fn weights(lse: &[f32]) -> (Vec<f32>, f32) {
        let (weights, merged) = weigh(lse.iter().copied());
        (weights[..lse.len()].to_vec(), merged)
    }

    #[test]
    fn one_part_is_kept() {
        assert_eq!(weights(&[-123.5]), (vec![1.0], -123.5));
        assert_eq!(weights(&[NONE, 7.0, NONE]), (vec![0.0, 1.0, 0.0], 7.0));
    }

    #[test]
    fn no_keys_at_all() {
        assert_eq!(weights(&[NONE, NONE]), (vec![0.0, 0.0], NONE));
    }

    #[test]
    fn equal_parts_share() {
        let (shares, merged) = weights(&[100.0, 100.0, NONE, 100.0, 100.0]);
        assert_eq!(shares, [0.25, 0.25, 0.0, 0.25, 0.25]);
        assert_eq!(merged, 100.0 + 4f32.ln());
    }

    #[test]
    fn far_apart_ones_do_not_overflow() {
        assert_eq!(weights(&[-3e38, 3e38]), (vec![0.0, 1.0], 3e38));
    }

    #[test]
    fn nan_is_not_lost() {
        for lse in [[f32::NAN, NONE], [1.0, f32::NAN], [f32::NAN, f32::NAN]] {
            let (shares, merged) = weights(&lse);
            assert!(merged.is_nan() && shares.iter().any(|share| share.is_nan()), "{lse:?}");
        }
    }
}
