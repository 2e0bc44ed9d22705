//! Softmax over scores that are stored transposed, `[keys, queries]`: a vector holds queries, so that the reductions
//! over the keys need no horizontal step.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::Exp;

/// One step of the online softmax.
///
/// Turns scores into `exp(score - max)` and updates the row statistics.
pub(super) struct Step {
    /// `[keys, stride]`, scores in, weights out.
    pub scores: *mut f32,
    /// Keys.
    pub keys: usize,
    /// Queries, a multiple of 16.
    pub queries: usize,
    /// Values from one key to the next.
    pub stride: usize,
    /// `[queries]`, maximum so far, -inf at the start.
    pub max: *mut f32,
    /// `[queries]`, sum so far, 0 at the start.
    pub sum: *mut f32,
    /// `[queries]`, written: factor for what was accumulated so far.
    pub correction: *mut f32,
}

impl Step {
    /// Runs the step.
    ///
    /// # Safety
    /// The pointers are valid for the shapes that the fields state.
    pub(super) unsafe fn run(self) {
        self.dispatch();
    }
}

impl SimdOp for Step {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let f = isa.f32();
        let infinite = f.splat(f32::NEG_INFINITY);
        for i in (0..self.queries).step_by(f.len()) {
            // SAFETY: the promise of `run`; 16 is a multiple of the lanes of every instruction set.
            unsafe {
                let column = self.scores.add(i);
                let old = f.load_ptr(self.max.add(i));
                let mut max = [old; 4];
                let mut key = 0;
                while key + 4 <= self.keys {
                    for (lane, max) in max.iter_mut().enumerate() {
                        *max = f.max(*max, f.load_ptr(column.add((key + lane) * self.stride)));
                    }
                    key += 4;
                }
                for key in key..self.keys {
                    max[0] = f.max(max[0], f.load_ptr(column.add(key * self.stride)));
                }
                let max = f.max(f.max(max[0], max[1]), f.max(max[2], max[3]));
                // Where no key was visible so far, -inf - -inf must not be taken.
                let shift = f.select(f.zero(), max, f.eq(max, infinite));
                let mut sum = [f.zero(); 2];
                for key in 0..self.keys {
                    let score = column.add(key * self.stride);
                    let weight = Exp::apply(isa, f.sub(f.load_ptr(score), shift));
                    sum[key % 2] = f.add(sum[key % 2], weight);
                    f.store_ptr(weight, score);
                }
                let correction = Exp::apply(isa, f.sub(old, shift));
                f.store_ptr(correction, self.correction.add(i));
                f.store_ptr(max, self.max.add(i));
                let total = f.mul_add(f.load_ptr(self.sum.add(i)), correction, f.add(sum[0], sum[1]));
                f.store_ptr(total, self.sum.add(i));
            }
        }
    }
}

/// `P = exp(S - lse)` and `dS = P * (dP - delta)`, both in place.
pub(super) struct Gradient {
    /// `[keys, stride]`: S in, P out.
    pub scores: *mut f32,
    /// `[keys, stride]`: dP in, dS out.
    pub gradients: *mut f32,
    /// Keys.
    pub keys: usize,
    /// Queries, a multiple of 16.
    pub queries: usize,
    /// Values from one key to the next.
    pub stride: usize,
    /// `[queries]`.
    pub lse: *const f32,
    /// `[queries]`: sum of `O * dO` of each query.
    pub delta: *const f32,
}

impl Gradient {
    /// Computes both.
    ///
    /// # Safety
    /// The pointers are valid for the shapes that the fields state.
    pub(super) unsafe fn run(self) {
        self.dispatch();
    }
}

impl SimdOp for Gradient {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let f = isa.f32();
        for i in (0..self.queries).step_by(f.len()) {
            // SAFETY: the promise of `run`.
            unsafe {
                let (lse, delta) = (f.load_ptr(self.lse.add(i)), f.load_ptr(self.delta.add(i)));
                for key in 0..self.keys {
                    let at = i + key * self.stride;
                    let p = Exp::apply(isa, f.sub(f.load_ptr(self.scores.add(at)), lse));
                    let ds = f.mul(p, f.sub(f.load_ptr(self.gradients.add(at)), delta));
                    f.store_ptr(p, self.scores.add(at));
                    f.store_ptr(ds, self.gradients.add(at));
                }
            }
        }
    }
}
