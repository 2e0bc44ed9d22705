//! How far two runs are apart, in units in the last place.

use crate::dtype::Dtype;

/// Differences of the elements of one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// Elements.
    pub count: usize,
    /// Those that are equal to the bit.
    pub equal: usize,
    /// Largest difference, in units in the last place of the element.
    pub element: f64,
    /// The same in units of the largest element of its row: what cancels leaves errors of its terms.
    pub row: f64,
}

impl Distance {
    /// Compares rows of `dim` elements.
    pub fn new(dtype: Dtype, dim: usize, got: &[f32], want: &[f32]) -> Self {
        let mut distance = Distance { count: want.len(), ..Distance::default() };
        if got.len() != want.len() {
            return Distance { element: f64::INFINITY, row: f64::INFINITY, ..distance };
        }
        for (got, want) in got.chunks(dim).zip(want.chunks(dim)) {
            let largest = want.iter().map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f32::max);
            for (&got, &want) in got.iter().zip(want) {
                if got.to_bits() == want.to_bits() {
                    distance.equal += 1;
                    continue;
                }
                // The difference of an infinity or a NaN to anything else counts as infinite.
                let error = (f64::from(got) - f64::from(want)).abs();
                let error = if error.is_finite() { error } else { f64::INFINITY };
                distance.element = distance.element.max(error / unit(dtype, want));
                distance.row = distance.row.max(error / unit(dtype, largest));
            }
        }
        distance
    }

    /// Whether all elements are equal to the bit.
    pub fn is_zero(&self) -> bool {
        self.equal == self.count && self.element == 0.0
    }
}

/// The unit in the last place of a value.
fn unit(dtype: Dtype, value: f32) -> f64 {
    let (bits, least) = match dtype {
        Dtype::Bf16 => (7, -126),
        Dtype::Fp16 => (10, -14),
        Dtype::Fp32 => (23, -126),
    };
    let exponent = (value.to_bits() >> 23 & 0xFF) as i32 - 127;
    f64::from(exponent.clamp(least, 127) - bits).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_the_type() {
        assert_eq!((unit(Dtype::Bf16, 1.5), unit(Dtype::Fp16, -2.0)), (2f64.powi(-7), 2f64.powi(-9)));
        assert_eq!((unit(Dtype::Fp16, 0.0), unit(Dtype::Fp32, 1.0)), (2f64.powi(-24), 2f64.powi(-23)));
    }

    #[test]
    fn differences_count_once_each() {
        let want = [1.0, 2.0, f32::NEG_INFINITY, 0.0];
        assert_eq!(
            Distance::new(Dtype::Fp32, 2, &want, &want),
            Distance { count: 4, equal: 4, element: 0.0, row: 0.0 }
        );
        let got = [1.0078125, 2.0, f32::NEG_INFINITY, 0.0];
        let found = Distance::new(Dtype::Bf16, 2, &got, &want);
        assert_eq!(found, Distance { count: 4, equal: 3, element: 1.0, row: 0.5 });
        let got = [1.0, 2.0, 0.0, 0.0];
        assert_eq!(Distance::new(Dtype::Bf16, 2, &got, &want).element, f64::INFINITY);
        assert_eq!(Distance::new(Dtype::Bf16, 2, &[f32::NAN; 4], &want).equal, 0);
        assert_eq!(Distance::new(Dtype::Bf16, 2, &want[..3], &want).row, f64::INFINITY);
        // A zero of the other sign is another bit pattern.
        assert!(!Distance::new(Dtype::Fp32, 1, &[-0.0], &[0.0]).is_zero());
        assert!(Distance::new(Dtype::Fp32, 1, &[], &[]).is_zero());
    }
}
