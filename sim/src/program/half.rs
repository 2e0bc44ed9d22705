//! Arithmetic on f16 and bf16, single and in pairs.

use ::half::{bf16, f16};

use super::alu::{Modes, lanes, minimum};
use super::op::{Lanes, Map};
use super::types::Type;

trait Narrow: Copy {
    fn wide(bits: u16) -> f32;
    /// Round to nearest even; NaN is canonical.
    fn narrow(value: f32) -> u16;
    /// The exact product and sum, rounded once.
    fn fused(a: u16, b: u16, c: u16) -> u16;
}

#[derive(Clone, Copy)]
struct F16;
#[derive(Clone, Copy)]
struct Bf16;

impl Narrow for F16 {
    fn wide(bits: u16) -> f32 {
        f16::from_bits(bits).to_f32()
    }
    fn narrow(value: f32) -> u16 {
        if value.is_nan() { 0x7FFF } else { f16::from_f32(value).to_bits() }
    }
    fn fused(a: u16, b: u16, c: u16) -> u16 {
        let exact = f16::from_bits(a).to_f64() * f16::from_bits(b).to_f64() + f16::from_bits(c).to_f64();
        if exact.is_nan() { 0x7FFF } else { f16::from_f64(exact).to_bits() }
    }
}

impl Narrow for Bf16 {
    fn wide(bits: u16) -> f32 {
        bf16::from_bits(bits).to_f32()
    }
    fn narrow(value: f32) -> u16 {
        if value.is_nan() { 0x7FFF } else { bf16::from_f32(value).to_bits() }
    }
    fn fused(a: u16, b: u16, c: u16) -> u16 {
        let exact = bf16::from_bits(a).to_f64() * bf16::from_bits(b).to_f64() + bf16::from_bits(c).to_f64();
        if exact.is_nan() { 0x7FFF } else { bf16::from_f64(exact).to_bits() }
    }
}

fn pair(d: &mut Lanes, sources: [&Lanes; 3], halves: u32, f: impl Fn(u16, u16, u16) -> u16) {
    for i in 0..32 {
        d[i] = (0..halves).fold(0, |out, h| {
            let [a, b, c] = sources.map(|s| (s[i] >> (16 * h)) as u16);
            out | u64::from(f(a, b, c)) << (16 * h)
        });
    }
}

fn of<T: Narrow>(root: &str, modes: &Modes, two: bool) -> Option<(Map, u8)> {
    macro_rules! both {
        ($count:literal, |$a:ident, $b:ident, $c:ident| $e:expr) => {{
            fn one<T: Narrow>(d: &mut Lanes, a: &Lanes, b: &Lanes, c: &Lanes) {
                pair(d, [a, b, c], 1, |$a, $b, $c| $e);
            }
            fn two_of<T: Narrow>(d: &mut Lanes, a: &Lanes, b: &Lanes, c: &Lanes) {
                pair(d, [a, b, c], 2, |$a, $b, $c| $e);
            }
            Some((if two { two_of::<T> as Map } else { one::<T> as Map }, $count))
        }};
    }
    if modes.has("sat") || modes.has("relu") || modes.has("xorsign") {
        return None;
    }
    match (root, modes.has("NaN")) {
        ("add", _) => both!(2, |a, b, _c| T::narrow(T::wide(a) + T::wide(b))),
        ("sub", _) => both!(2, |a, b, _c| T::narrow(T::wide(a) - T::wide(b))),
        ("mul", _) => both!(2, |a, b, _c| T::narrow(T::wide(a) * T::wide(b))),
        ("fma", _) => both!(3, |a, b, c| T::fused(a, b, c)),
        ("min", false) => both!(2, |a, b, _c| T::narrow(minimum(T::wide(a), T::wide(b), false, false))),
        ("min", true) => both!(2, |a, b, _c| T::narrow(minimum(T::wide(a), T::wide(b), true, false))),
        ("max", false) => both!(2, |a, b, _c| T::narrow(minimum(T::wide(a), T::wide(b), false, true))),
        ("max", true) => both!(2, |a, b, _c| T::narrow(minimum(T::wide(a), T::wide(b), true, true))),
        ("ex2", _) => both!(1, |a, _b, _c| T::narrow(T::wide(a).exp2())),
        ("tanh", _) => both!(1, |a, _b, _c| T::narrow(T::wide(a).tanh())),
        ("neg", _) if two => lanes!(|a| a as u32 ^ 0x8000_8000),
        ("neg", _) => lanes!(|a| a as u16 ^ 0x8000),
        ("abs", _) if two => lanes!(|a| a as u32 & 0x7FFF_7FFF),
        ("abs", _) => lanes!(|a| a as u16 & 0x7FFF),
        _ => None,
    }
}

/// The function of `root` on this type.
pub fn half(root: &str, modes: &Modes, t: Type) -> Option<(Map, u8)> {
    match t {
        Type::F16 => of::<F16>(root, modes, false),
        Type::F16x2 => of::<F16>(root, modes, true),
        Type::Bf16 => of::<Bf16>(root, modes, false),
        _ => of::<Bf16>(root, modes, true),
    }
}
