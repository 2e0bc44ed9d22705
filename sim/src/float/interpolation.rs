//! 2^x, log2(x) and 1/x as Hopper's special function unit computes them, to the bit.
//!
//! Found from the results of an H200 for all values of several binades and samples of all others (the tests have their
//! hashes). The significand's highest bits choose a segment, and of its other bits k, n in number, the unit forms
//! `constant + slope k + curvature S(k) + bias` exactly. S is k squared to 15 bits, where the partial products of two
//! bits below the lowest one are left out, each pair counted once. What lies below the result's last bit is cut off.

use std::sync::LazyLock;

use super::coefficients::{EX2, LG2, RCP};

/// Bits of k in the tables of 64 segments; those of 128 have one less.
const LOW: u32 = 17;
/// Bits of a significand below its leading one.
const FRACTION: u32 = 23;
const MASK: i64 = (1 << FRACTION) - 1;

/// S(k) for k of 17 bits; a k of 16 is shifted up by one.
static SQUARES: LazyLock<Vec<u16>> = LazyLock::new(|| (0..1u64 << LOW).map(square).collect());

/// k^2 / 2^19 without the partial products below 2^19.
fn square(k: u64) -> u16 {
    const LEAST: u32 = 2 * LOW - 15;
    let mut sum = 0;
    for i in (0..LOW).filter(|i| k >> i & 1 == 1) {
        if 2 * i >= LEAST {
            sum += 1 << (2 * i);
        }
        // Pairs of bit i and a higher bit j count 2^(i + j + 1).
        let lowest = (i + 1).max(LEAST.saturating_sub(i + 1));
        sum += (k >> lowest << lowest) << (i + 1);
    }
    (sum >> LEAST) as u16
}

/// The sum of a segment for the fraction `f` of 23 bits, without its bias. `constant` and `curvature` are shifted to
/// the scale of slope times k.
#[inline(always)]
fn interpolate<const N: usize>(table: &[(i32, i32, i32); N], f: i64, constant: u32, curvature: u32) -> i64 {
    let low = FRACTION - N.ilog2();
    let k = f & ((1 << low) - 1);
    let (c0, c1, c2) = table[(f >> low) as usize];
    let square = i64::from(SQUARES[(k << (LOW - low)) as usize]);
    (i64::from(c0) << constant) + i64::from(c1) * k + ((i64::from(c2) * square) << curvature)
}

/// Exponent without its bias, and significand as an integer of 24 bits, of a normal number.
fn parts(x: f32) -> (i32, i64) {
    let bits = x.to_bits();
    ((bits >> FRACTION & 0xFF) as i32 - 127, i64::from(bits) & MASK | 1 << FRACTION)
}

/// 2^e for e in -1022 to 1023.
fn power(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// 2^x for a normal x or zero. The compiler halves an argument below the range and squares the result.
pub fn ex2(x: f32) -> f32 {
    if x < -126.0 {
        let root = ex2_unit((x * 0.5).max(-250.0));
        return root * root;
    }
    if x >= 128.0 { f32::INFINITY } else { ex2_unit(x) }
}

fn ex2_unit(x: f32) -> f32 {
    let (e, significand) = parts(x);
    // |x| 2^23, cut off. For a negative x its complement, which is one less than its negation, unless it is whole.
    let size = if e >= 0 { significand << e } else { significand >> (-e).min(40) };
    let fixed = match x.is_sign_negative() {
        false => size,
        true if size & MASK == 0 => -size,
        true => !size,
    };
    let sum = interpolate(&EX2, fixed & MASK, 13, 0) + 6114;
    ((sum >> 15) as f64 * power((fixed >> FRACTION) as i32 - FRACTION as i32)) as f32
}

/// log2(x) for a positive x. The compiler scales a subnormal one by 2^24.
pub fn lg2(x: f32) -> f32 {
    if x.is_subnormal() { lg2_unit(x * 2f32.powi(24)) - 24.0 } else { lg2_unit(x) }
}

fn lg2_unit(x: f32) -> f32 {
    if x == 1.0 {
        return 0.0;
    }
    let (e, significand) = parts(x);
    // In units of 2^-38, of which the last two bits are cut off. A negative sum is complemented.
    let sum = (i64::from(e) << 38) + interpolate(&LG2, significand & MASK, 12, 1) + 837;
    let size = if sum < 0 { !sum } else { sum } >> 2;
    let excess = (i64::BITS - size.leading_zeros()).saturating_sub(FRACTION + 1);
    let value = (size >> excess << excess) as f64 * power(-36);
    (if sum < 0 { -value } else { value }) as f32
}

/// 1 / x for a normal x.
pub fn rcp(x: f32) -> f32 {
    let (e, significand) = parts(x);
    let sum = interpolate(&RCP, significand & MASK, 13, 0) + 2023;
    let value = (sum >> 15) as f64 * power(-e - FRACTION as i32 - 1);
    (value as f32).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::super::{Approx, Function};

    /// FNV-1a, a word at a time, of the results for `count` bit patterns.
    fn hash(function: Function, ftz: bool, patterns: impl Iterator<Item = u32>) -> u64 {
        let value = |bits| Approx::Hopper.f32(function, f32::from_bits(bits), ftz).to_bits();
        patterns.fold(0xcbf2_9ce4_8422_2325, |h: u64, bits| (h ^ u64::from(value(bits))).wrapping_mul(0x100_0000_01b3))
    }

    /// All values of a binade, from its first.
    #[test]
    fn binades_are_those_of_the_hardware() {
        for (function, first, want) in [
            (Function::Ex2, 1.0f32, 0x3f0f_3852_f2fa_7edb),
            (Function::Ex2, 0.5, 0x1938_ae1c_a053_e4e7),
            (Function::Ex2, -1.0, 0xbf4f_30a3_7a9d_5b98),
            (Function::Ex2, -0.5, 0x86cb_d167_bc4d_aa17),
            (Function::Rcp, 1.0, 0xfa72_a6c6_9827_4964),
            (Function::Lg2, 1.0, 0x5ca4_3d6b_0d17_6848),
            (Function::Lg2, 0.5, 0xf888_4f09_7b12_e53d),
        ] {
            let first = first.to_bits();
            assert_eq!(hash(function, true, first..first + (1 << 23)), want, "{function:?} from {first:#x}");
        }
    }

    /// Samples of each binade in which the argument of 2^x has more, or fewer bits than the unit looks at.
    #[test]
    fn small_and_large_arguments_are_those_of_the_hardware() {
        let binade = |sign: u32, e: i32, step: u32| {
            let first = sign << 31 | ((e + 127) as u32) << 23;
            (0..(1u32 << 23) / step).map(move |i| first + i * step)
        };
        let ex2 = |sign| hash(Function::Ex2, true, (-40..8).flat_map(|e| binade(sign, e, 1021)));
        assert_eq!((ex2(0), ex2(1)), (0x841a_6128_27ea_0bcc, 0x3fa7_970e_e1bc_dc97));
        let scaled = |function, step| hash(function, true, (-4..5).flat_map(|e| binade(0, e, step)));
        assert_eq!(scaled(Function::Rcp, 1021), 0x1202_ebca_7152_41d5);
        assert_eq!(scaled(Function::Lg2, 251), 0x436d_f6bd_d4f1_2deb);
    }

    /// Every 65519th bit pattern: all signs and exponents, NaN and infinities.
    #[test]
    fn samples_are_those_of_the_hardware() {
        for (function, ftz, want) in [
            (Function::Ex2, true, 0xd090_63f5_9eb6_2ea1),
            (Function::Ex2, false, 0x670e_1c52_a74b_2c47),
            (Function::Lg2, true, 0x7ab4_f0ab_2276_ff27),
            (Function::Lg2, false, 0xd79d_83b0_31e8_fbc6),
            (Function::Rcp, true, 0x22ad_cd35_125a_2df6),
        ] {
            let patterns = (0..u32::MAX / 65519).map(|i| i * 65519);
            assert_eq!(hash(function, ftz, patterns), want, "{function:?}, ftz {ftz}");
        }
    }
}
