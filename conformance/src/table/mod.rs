//! The table: every case of every group.

mod accumulate;
mod bits;
mod layouts;
mod lengths;
mod masks;
mod numeric;
mod random;
mod rejections;
mod sizes;
mod soak;
mod values;

use crate::case::Case;
use crate::dtype::Dtype;

/// All cases for a device that offers `dtypes`, with as many random ones as asked for.
pub fn all(dtypes: &[Dtype], seed: u64, randoms: u64) -> Vec<Case> {
    let mut cases = numeric::cases(dtypes);
    for &dtype in dtypes {
        cases.extend(lengths::cases(dtype));
        cases.extend(masks::cases(dtype));
        cases.extend(values::cases(dtype));
        cases.extend(layouts::cases(dtype));
        cases.extend(bits::cases(dtype));
        cases.extend(accumulate::cases(dtype));
        cases.extend(soak::cases(dtype));
    }
    // What does not depend on the type runs in one that all devices have.
    cases.extend(sizes::cases(Dtype::Bf16));
    cases.extend(rejections::cases(Dtype::Bf16));
    cases.extend((0..randoms).map(|index| random::case(dtypes, seed, index)));
    cases
}
