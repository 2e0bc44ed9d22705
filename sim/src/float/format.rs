//! Conversions between f32 and narrower formats (PTX ISA 9.7.9.21, `cvt`; formats: 5.2.3).

/// Rounding of a conversion from f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to even (`.rn`).
    NearestEven,
    /// To nearest, ties away from zero (`.rna`).
    NearestAway,
    /// Toward zero (`.rz`).
    Zero,
    /// Toward minus infinity (`.rm`).
    Down,
    /// Toward plus infinity (`.rp`).
    Up,
    /// Stochastic (`.rs`): the bits are added below the last place, aligned to it from above, and the sum truncated.
    /// How hardware aligns user bits to the discarded ones is not stated by the ISA.
    Stochastic(u32),
}

/// Codes that a format reserves at the top of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nan {
    /// The largest exponent holds infinity and NaN.
    Ieee,
    /// Only the all-ones magnitude is NaN, there is no infinity.
    AllOnes,
    /// Every code is finite.
    None,
}

/// A binary format: sign, exponent and mantissa, with subnormals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Exponent bits; the bias is `2^(exponent - 1) - 1`.
    pub exponent: u32,
    /// Stored mantissa bits.
    pub mantissa: u32,
    /// Infinity and NaN codes.
    pub nan: Nan,
    /// The NaN that conversions produce; for formats without one, the largest finite value.
    pub canonical_nan: u32,
}

/// IEEE half precision.
pub const F16: Format = Format { exponent: 5, mantissa: 10, nan: Nan::Ieee, canonical_nan: 0x7FFF };
/// Upper half of f32.
pub const BF16: Format = Format { exponent: 8, mantissa: 7, nan: Nan::Ieee, canonical_nan: 0x7FFF };
/// f32 with ten mantissa bits; a `.b32` register holds the code shifted left by 13.
pub const TF32: Format = Format { exponent: 8, mantissa: 10, nan: Nan::Ieee, canonical_nan: 0x3FFFF };
/// FP8 with a maximum of 448.
pub const E4M3: Format = Format { exponent: 4, mantissa: 3, nan: Nan::AllOnes, canonical_nan: 0x7F };
/// FP8 with a maximum of 57344.
pub const E5M2: Format = Format { exponent: 5, mantissa: 2, nan: Nan::Ieee, canonical_nan: 0x7F };
/// FP6 with a maximum of 7.5.
pub const E2M3: Format = Format { exponent: 2, mantissa: 3, nan: Nan::None, canonical_nan: 0x1F };
/// FP6 with a maximum of 28.
pub const E3M2: Format = Format { exponent: 3, mantissa: 2, nan: Nan::None, canonical_nan: 0x1F };
/// FP4 with a maximum of 6.
pub const E2M1: Format = Format { exponent: 2, mantissa: 1, nan: Nan::None, canonical_nan: 0x7 };

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Bits of a code, sign included.
    pub const fn bits(self) -> u32 {
        1 + self.exponent + self.mantissa
    }

    /// Code of the largest finite magnitude.
    pub const fn max_code(self) -> u32 {
        let all = (1 << (self.exponent + self.mantissa)) - 1;
        match self.nan {
            Nan::None => all,
            Nan::AllOnes => all - 1,
            Nan::Ieee => all - (1 << self.mantissa),
        }
    }

    /// Value of a code; bits above the sign are ignored. Exact.
    pub fn decode(self, code: u32) -> f32 {
        let magnitude = code & ((1 << (self.exponent + self.mantissa)) - 1);
        let negative = code >> (self.exponent + self.mantissa) & 1 == 1;
        let field = magnitude >> self.mantissa;
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let value = if magnitude > self.max_code() {
            if self.nan == Nan::Ieee && fraction == 0 { f32::INFINITY } else { f32::NAN }
        } else if self.exponent == 8 {
            // The exponent field is that of f32, so subnormals agree too.
            f32::from_bits(magnitude << (23 - self.mantissa))
        } else {
            let (significand, exponent) =
                if field == 0 { (fraction, 1) } else { (fraction | 1 << self.mantissa, field) };
            significand as f32 * exp2i(exponent as i32 - self.bias() - self.mantissa as i32)
        };
        if negative { -value } else { value }
    }

    /// Code of `x` rounded to this format.
    ///
    /// With `satfinite`, magnitudes above the maximum, infinity included, become the maximum; formats without infinity
    /// and NaN always saturate. `relu` turns negative results into +0 and NaN into the canonical NaN.
    pub fn encode(self, x: f32, rounding: Rounding, satfinite: bool, relu: bool) -> u32 {
        if x.is_nan() {
            return self.canonical_nan;
        }
        if relu && x.is_sign_negative() {
            return 0;
        }
        let sign = if x.is_sign_negative() { 1 << (self.exponent + self.mantissa) } else { 0 };
        let saturate = satfinite || self.nan == Nan::None;
        let overflow = if saturate {
            self.max_code()
        } else {
            match self.nan {
                Nan::Ieee => self.max_code() + 1,
                _ => self.canonical_nan,
            }
        };
        if x.is_infinite() {
            return sign | overflow;
        }
        let code = self.round(x, rounding);
        if code <= self.max_code() {
            return sign | code;
        }
        // A directed rounding stops at the largest finite value on the side that it rounds away from.
        let truncates = match rounding {
            Rounding::Zero | Rounding::Stochastic(_) => true,
            Rounding::Down => sign == 0,
            Rounding::Up => sign != 0,
            Rounding::NearestEven | Rounding::NearestAway => false,
        };
        sign | if truncates { self.max_code() } else { overflow }
    }

    /// Magnitude code of a finite `x`, as if the exponent had no upper end.
    fn round(self, x: f32, rounding: Rounding) -> u32 {
        let bits = x.to_bits() & 0x7FFF_FFFF;
        if bits == 0 {
            return 0;
        }
        let (mut significand, mut exponent) = ((bits & 0x7F_FFFF) as u64, (bits >> 23) as i32);
        if exponent == 0 {
            let shift = significand.leading_zeros() as i32 - 40;
            significand <<= shift;
            exponent = 1 - shift;
        } else {
            significand |= 1 << 23;
        }
        // |x| = significand * 2^(exponent - 127 - 23), and 2^23 <= significand < 2^24.
        let lowest = 1 - self.bias();
        let exponent = exponent - 127;
        let drop = (23 - self.mantissa as i32 + (lowest - exponent).max(0)).min(40) as u32;
        let (kept, rest) = (significand >> drop, significand & ((1 << drop) - 1));
        let half = if drop == 0 { u64::MAX } else { 1 << (drop - 1) };
        let negative = x.is_sign_negative();
        let up = match rounding {
            Rounding::NearestEven => rest > half || (rest == half && kept & 1 == 1),
            Rounding::NearestAway => rest >= half,
            Rounding::Zero => false,
            Rounding::Down => negative && rest != 0,
            Rounding::Up => !negative && rest != 0,
            Rounding::Stochastic(random) => rest + ((random as u64) << drop >> 32) >= 1 << drop,
        };
        // A normal significand carries its leading bit into the exponent field, as does a rounding up.
        (((exponent.max(lowest) - lowest) as u32) << self.mantissa) + kept as u32 + up as u32
    }
}

/// What the tensor cores use of a tf32 operand: the low 13 bits are dropped.
#[inline]
pub fn tf32_operand(bits: u32) -> f32 {
    f32::from_bits(bits & !0x1FFF)
}

/// 2^e for exponents of normal f32 values.
fn exp2i(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [Format; 5] = [E4M3, E5M2, E2M3, E3M2, E2M1];

    /// All finite magnitudes of a format, from the definition.
    fn values(format: Format) -> Vec<f64> {
        let bias = (1 << (format.exponent - 1)) - 1;
        (0..=format.max_code())
            .map(|code| {
                let (e, m) = (code >> format.mantissa, code & ((1 << format.mantissa) - 1));
                let fraction = m as f64 / (1u64 << format.mantissa) as f64;
                if e == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(e as i32 - bias) }
            })
            .collect()
    }

    #[test]
    fn decodes_by_definition() {
        for format in SMALL.into_iter().chain([F16]) {
            for (code, value) in values(format).into_iter().enumerate() {
                let sign = 1 << (format.bits() - 1);
                assert_eq!(format.decode(code as u32) as f64, value, "{format:?} {code:#x}");
                assert_eq!(format.decode(code as u32 | sign) as f64, -value);
            }
        }
        assert_eq!((E4M3.decode(0x7E), E5M2.decode(0x7B), E2M1.decode(7)), (448.0, 57344.0, 6.0));
        assert_eq!((E2M3.decode(0x1F), E3M2.decode(0x1F)), (7.5, 28.0));
        assert!(E4M3.decode(0x7F).is_nan() && E5M2.decode(0x7D).is_nan() && E5M2.decode(0xFC) == f32::NEG_INFINITY);
    }

    #[test]
    fn agrees_with_half_on_16_bit_formats() {
        for i in 0..2_000_000u32 {
            let bits = i.wrapping_mul(2_654_435_761);
            let x = f32::from_bits(bits);
            if x.is_nan() {
                continue;
            }
            let rn = Rounding::NearestEven;
            assert_eq!(F16.encode(x, rn, false, false), half::f16::from_f32(x).to_bits() as u32, "{x:e}");
            assert_eq!(BF16.encode(x, rn, false, false), half::bf16::from_f32(x).to_bits() as u32, "{x:e}");
        }
        for code in 0..=u16::MAX {
            let (a, b) = (F16.decode(code as u32), half::f16::from_bits(code).to_f32());
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
            let (a, b) = (BF16.decode(code as u32), half::bf16::from_bits(code).to_f32());
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
        }
    }

    /// Rounding of a magnitude by search among the format's values.
    fn search(format: Format, x: f64, rounding: Rounding) -> u32 {
        let all = values(format);
        let above = all.iter().position(|&v| v >= x).unwrap_or(all.len() - 1);
        if all[above] <= x {
            return above as u32;
        }
        let below = above - 1;
        let (down, up) = (x - all[below], all[above] - x);
        let above_wins = match rounding {
            Rounding::NearestEven => up < down || (up == down && above % 2 == 0),
            Rounding::NearestAway => up <= down,
            Rounding::Up => true,
            _ => false,
        };
        (if above_wins { above } else { below }) as u32
    }

    #[test]
    fn rounds_small_formats_like_a_search() {
        for format in SMALL {
            let max = *values(format).last().unwrap() as f32;
            for i in 0..4000 {
                let x = max * (i as f32 / 3999.0).powi(3);
                for rounding in
                    [Rounding::NearestEven, Rounding::NearestAway, Rounding::Zero, Rounding::Up, Rounding::Down]
                {
                    let code = format.encode(x, rounding, true, false);
                    assert_eq!(code, search(format, x as f64, rounding), "{format:?} {x} {rounding:?}");
                }
            }
        }
    }

    #[test]
    fn saturates_and_clamps() {
        let rn = Rounding::NearestEven;
        assert_eq!(E4M3.encode(465.0, rn, true, false), 0x7E);
        assert_eq!(E4M3.encode(465.0, rn, false, false), 0x7F);
        assert_eq!(E4M3.encode(-f32::INFINITY, rn, true, false), 0xFE);
        assert_eq!(E5M2.encode(1e9, rn, true, false), 0x7B);
        assert_eq!(E5M2.encode(1e9, rn, false, false), 0x7C);
        assert_eq!(E5M2.encode(1e9, Rounding::Zero, false, false), 0x7B);
        assert_eq!(E2M1.encode(f32::NAN, rn, true, false), 7);
        assert_eq!(E2M3.encode(f32::NAN, rn, true, false), 0x1F);
        assert_eq!(BF16.encode(f32::NAN, rn, false, true), 0x7FFF);
        assert_eq!(F16.encode(-3.0, rn, false, true), 0);
        assert_eq!(F16.encode(1e6, rn, true, false), 0x7BFF);
        assert_eq!(
            TF32.encode(1.0 + f32::EPSILON, Rounding::Up, false, false) << 13,
            (1.0f32 + 2f32.powi(-10)).to_bits()
        );
    }

    #[test]
    fn stochastic_rounding_is_monotonic_in_its_bits() {
        // 1 + 1/4 of a last place rounds up for a quarter of all random bits.
        let x = 1.0 + 0.25 * 2f32.powi(-7);
        let up = (0..1024u32).filter(|i| BF16.encode(x, Rounding::Stochastic(i << 22), false, false) == 0x3F81).count();
        assert_eq!(up, 256);
    }
}
