//! Scale-factor formats of block-scaled products (PTX ISA 5.2.3 and 9.7.9.21).

use super::format::{E4M3, Rounding};

/// Value of a UE8M0 code: 2^(code - 127), 0xFF is NaN.
pub fn ue8m0(code: u8) -> f32 {
    match code {
        0xFF => f32::NAN,
        0 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits((code as u32) << 23),
    }
}

/// Value of a UE4M3 code: E4M3 without a sign; bit 7 is ignored, 0x7F is NaN.
pub fn ue4m3(code: u8) -> f32 {
    E4M3.decode(code as u32 & 0x7F)
}

/// UE8M0 code of |x|, rounded toward zero or up (`cvt.{rz|rp}.ue8m0x2`).
///
/// The format has no zero: what is below its smallest value becomes 2^-127. Overflow gives NaN, with `satfinite`
/// 2^127. The ISA does not state what a negative input gives; its sign is dropped.
pub fn encode_ue8m0(x: f32, rounding: Rounding, satfinite: bool) -> u8 {
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    if x.is_nan() {
        return 0xFF;
    }
    let mut code = magnitude >> 23;
    let fraction = magnitude & 0x7F_FFFF;
    // Code 0 stands for 2^-127, which f32 holds as the subnormal with the top fraction bit.
    let exact = if code == 0 { 0x40_0000 } else { 0 };
    if rounding == Rounding::Up && fraction > exact {
        code += 1;
    }
    match code {
        0xFF.. if satfinite => 0xFE,
        0xFF.. => 0xFF,
        code => code as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ue8m0_is_a_power_of_two() {
        for code in 0..=254u8 {
            assert_eq!(ue8m0(code) as f64, 2f64.powi(code as i32 - 127));
            for rounding in [Rounding::Zero, Rounding::Up] {
                assert_eq!(encode_ue8m0(ue8m0(code), rounding, true), code);
            }
        }
        assert!(ue8m0(255).is_nan());
        assert_eq!((encode_ue8m0(1.5, Rounding::Zero, true), encode_ue8m0(1.5, Rounding::Up, true)), (127, 128));
        assert_eq!(
            (encode_ue8m0(f32::MAX, Rounding::Up, true), encode_ue8m0(f32::MAX, Rounding::Up, false)),
            (254, 255)
        );
        assert_eq!((encode_ue8m0(0.0, Rounding::Up, true), encode_ue8m0(f32::NAN, Rounding::Up, true)), (0, 255));
        assert_eq!(encode_ue8m0(f32::from_bits(0x40_0001), Rounding::Up, true), 1);
    }

    #[test]
    fn ue4m3_has_no_sign() {
        assert_eq!((ue4m3(0x7E), ue4m3(0xFE), ue4m3(0x38)), (448.0, 448.0, 1.0));
        assert!(ue4m3(0x7F).is_nan());
    }
}
