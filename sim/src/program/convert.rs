//! `cvt` (PTX ISA, "Data Movement and Conversion Instructions: cvt").

use super::alu::lanes;
use super::float::ftz;
use super::op::{Lanes, Map};
use super::types::Type;
use crate::float::{self, BF16, E4M3, E5M2, F16, Format, Rounding, TF32};

/// A conversion that has no function of its own.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub to: Type,
    pub from: Type,
    pub rounding: Option<Rounding>,
    /// `.rni`, `.rzi`, `.rmi`, `.rpi`.
    pub integral: Option<Rounding>,
    pub sat: bool,
    pub satfinite: bool,
    pub relu: bool,
    pub ftz: bool,
}

/// Frequent conversions as functions of whole registers.
pub fn fast(c: &Conversion) -> Option<(Map, u8)> {
    use Type::*;
    let plain = !c.sat && !c.relu && !c.satfinite && !c.ftz;
    if !plain {
        return None;
    }
    match (c.to, c.from) {
        (Bf16x2, F32) if matches!(c.rounding, Some(Rounding::NearestEven)) => {
            lanes!(|a, b| u32::from(bf16_of(b as u32)) | u32::from(bf16_of(a as u32)) << 16)
        }
        (F16x2, F32) if matches!(c.rounding, Some(Rounding::NearestEven)) => {
            lanes!(|a, b| u32::from(f16_of(b as u32)) | u32::from(f16_of(a as u32)) << 16)
        }
        (Bf16, F32) if matches!(c.rounding, Some(Rounding::NearestEven)) => lanes!(|a| bf16_of(a as u32)),
        (F16, F32) if matches!(c.rounding, Some(Rounding::NearestEven)) => lanes!(|a| f16_of(a as u32)),
        (F32, F16) => lanes!(|a| {
            let value = half::f16::from_bits(a as u16).to_f32();
            if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits() }
        }),
        (U64 | S64 | B64, U32 | B32) => lanes!(|a| a as u32),
        (U64 | S64 | B64, S32) => lanes!(|a| i64::from(a as i32)),
        (U64 | S64, U64 | S64) => lanes!(|a| a),
        (U32 | S32 | B32, U64 | S64 | U32 | S32 | B64 | B32) => lanes!(|a| a as u32),
        (U32 | S32, U16 | B16) => lanes!(|a| a as u16),
        (U32 | S32, S16) => lanes!(|a| i32::from(a as i16) as u32),
        (U32 | S32, U8) | (U16 | S16, U8) => lanes!(|a| a as u8),
        (U32 | S32, S8) => lanes!(|a| i32::from(a as i8) as u32),
        (U16 | S16, S8) => lanes!(|a| i16::from(a as i8) as u16),
        (U16 | S16, U16 | S16 | U32 | S32 | U64 | S64) => lanes!(|a| a as u16),
        (U8 | S8, U16 | S16 | U32 | S32 | U64 | S64) => lanes!(|a| a as u8),
        (F32, Bf16) => lanes!(|a| (a as u16 as u32) << 16),
        (F32, S32) => lanes!(|a| (a as i32 as f32).to_bits()),
        (F32, U32) => lanes!(|a| (a as u32 as f32).to_bits()),
        _ => None,
    }
}

fn bf16_of(bits: u32) -> u16 {
    if f32::from_bits(bits).is_nan() {
        return 0x7FFF;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

fn f16_of(bits: u32) -> u16 {
    let value = f32::from_bits(bits);
    if value.is_nan() { 0x7FFF } else { half::f16::from_f32(value).to_bits() }
}

enum Value {
    Integer(i128),
    Float(f64),
}

fn format(t: Type) -> Option<Format> {
    Some(match t {
        Type::F16 | Type::F16x2 => F16,
        Type::Bf16 | Type::Bf16x2 => BF16,
        Type::Tf32 => TF32,
        Type::E4m3x2 => E4M3,
        Type::E5m2x2 => E5M2,
        _ => return None,
    })
}

impl Conversion {
    /// Registers read: two where a pair is packed from two values.
    pub fn sources(&self) -> u8 {
        let packs = matches!(self.to, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2);
        if packs && self.from == Type::F32 { 2 } else { 1 }
    }

    /// Whether `apply` knows this pair of types.
    pub fn known(&self) -> bool {
        use Type::*;
        let scalar =
            |t: Type| t.bits() <= 64 && !matches!(t, F16x2 | Bf16x2 | E4m3x2 | E5m2x2 | Ue8m0x2 | F32x2 | Pred);
        let float = |t: Type| matches!(t, F16 | Bf16 | F32 | F64 | Tf32);
        let random =
            matches!(self.rounding, Some(Rounding::Zero | Rounding::NearestEven | Rounding::NearestAway) | None);
        match (self.to, self.from) {
            (F16x2 | Bf16x2 | E4m3x2 | E5m2x2, F32) | (F16x2, E4m3x2 | E5m2x2) | (E4m3x2 | E5m2x2, F16x2) => true,
            (to, from) if scalar(to) && scalar(from) => random || !float(to) || !float(from) || self.integral.is_some(),
            _ => false,
        }
    }

    pub fn apply(&self, a: u64, b: u64) -> u64 {
        use Type::*;
        let rounding = self.rounding.unwrap_or(Rounding::NearestEven);
        let finite = self.satfinite;
        if let Some(format) = format(self.to) {
            let encode =
                |x: f32| u64::from(format.encode(if self.ftz { ftz(x) } else { x }, rounding, finite, self.relu));
            let f32_of = |x: u64| f32::from_bits(x as u32);
            match (self.to, self.from) {
                (F16x2 | Bf16x2, F32) => return encode(f32_of(b)) | encode(f32_of(a)) << 16,
                (E4m3x2 | E5m2x2, F32) => return encode(f32_of(b)) | encode(f32_of(a)) << 8,
                (E4m3x2 | E5m2x2, _) => {
                    return encode(float::F16.decode(a as u32 & 0xFFFF))
                        | encode(float::F16.decode(a as u32 >> 16)) << 8;
                }
                (F16x2, from) => {
                    let format = if from == E4m3x2 { E4M3 } else { E5M2 };
                    return encode(format.decode(a as u32 & 255)) | encode(format.decode(a as u32 >> 8 & 255)) << 16;
                }
                (_, F32) => return encode(f32_of(a)),
                _ => {}
            }
        }
        let value = match self.from {
            F32 | Tf32 => {
                let x = f32::from_bits(a as u32);
                Value::Float(f64::from(if self.ftz { ftz(x) } else { x }))
            }
            F64 => Value::Float(f64::from_bits(a)),
            F16 => Value::Float(f64::from(float::F16.decode(a as u32 & 0xFFFF))),
            Bf16 => Value::Float(f64::from(BF16.decode(a as u32 & 0xFFFF))),
            S8 => Value::Integer((a as i8).into()),
            S16 => Value::Integer((a as i16).into()),
            S32 => Value::Integer((a as i32).into()),
            S64 => Value::Integer((a as i64).into()),
            U8 | B8 => Value::Integer((a as u8).into()),
            U16 | B16 => Value::Integer((a as u16).into()),
            U32 | B32 => Value::Integer((a as u32).into()),
            _ => Value::Integer(a.into()),
        };
        let float = matches!(self.to, F16 | Bf16 | F32 | F64 | Tf32);
        match (value, float) {
            (Value::Integer(x), false) => self.integer(x),
            (Value::Float(x), false) => {
                let rounded = round(x, self.integral.unwrap_or(rounding));
                // Out of range saturates; NaN is 0 for narrow types and the largest negative of f64 sources is not modelled.
                if x.is_nan() { 0 } else { Conversion { sat: true, ..*self }.integer(rounded as i128) }
            }
            (Value::Integer(x), true) => match self.to {
                F32 => u64::from((x as f32).to_bits()),
                F64 => (x as f64).to_bits(),
                _ => self.float(x as f64, rounding),
            },
            (Value::Float(x), true) => {
                let x = self.integral.map_or(x, |r| round(x, r));
                self.float(x, rounding)
            }
        }
    }

    fn float(&self, x: f64, rounding: Rounding) -> u64 {
        let x = if self.sat && x.is_nan() { 0.0 } else { x };
        let x = if self.sat { x.clamp(0.0, 1.0) } else { x };
        match (self.to, format(self.to)) {
            (Type::F64, _) => x.to_bits(),
            (_, Some(format)) => format.encode(x as f32, rounding, self.satfinite, self.relu).into(),
            _ if x.is_nan() => 0x7FFF_FFFF,
            _ => {
                let near = x as f32;
                let cut = matches!(rounding, Rounding::Zero) && f64::from(near).abs() > x.abs();
                let value = if cut { f32::from_bits(near.to_bits() - 1) } else { near };
                u64::from(if self.ftz { ftz(value) } else { value }.to_bits())
            }
        }
    }

    fn integer(&self, x: i128) -> u64 {
        let bits = self.to.bits();
        let (low, high) = match self.to.signed() {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        let x = if self.sat { x.clamp(low, high) } else { x };
        // A narrow result is extended to the register by its sign.
        let wide = if bits < 32 && self.to.signed() { (x << (128 - bits)) >> (128 - bits) } else { x };
        wide as u64 & u64::MAX >> (64 - bits.max(32))
    }
}

fn round(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
        Rounding::NearestAway => x.round(),
        _ => x.round_ties_even(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(to: Type, from: Type) -> Conversion {
        Conversion { to, from, rounding: None, integral: None, sat: false, satfinite: false, relu: false, ftz: false }
    }

    #[test]
    fn by_the_isa() {
        let to_int = Conversion { integral: Some(Rounding::Zero), ..plain(Type::S32, Type::F32) };
        assert_eq!(to_int.apply(u64::from((-2.7f32).to_bits()), 0) as u32 as i32, -2);
        assert_eq!(to_int.apply(u64::from(3e10f32.to_bits()), 0) as i32, i32::MAX);
        assert_eq!(plain(Type::S32, Type::S8).apply(0x80, 0), 0xFFFF_FF80);
        let pack = plain(Type::F16x2, Type::F32);
        assert_eq!(pack.apply(u64::from(1f32.to_bits()), u64::from((-2f32).to_bits())), 0x3C00_C000);
        assert_eq!(bf16_of(0x3F80_8000), 0x3F80);
        assert_eq!(bf16_of(0x3F81_8000), 0x3F82);
    }
}
