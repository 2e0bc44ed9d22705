//! Arithmetic on f16 and bf16, single and in pairs.

use ::half::{bf16, f16};

use super::alu::{Modes, lanes};
use super::float::minimum;
use super::op::{Lanes, Map};
use super::types::Type;

trait Narrow: Copy {
    fn wide(bits: u16) -> f32;
    /// Round to nearest even; NaN is canonical.
    fn narrow(value: f32) -> u16;

    /// The exact product and sum, rounded once. An f32 that is rounded to odd still shows on which side of a midpoint
    /// of the narrow type the exact value lies.
    fn fused(a: u16, b: u16, c: u16) -> u16 {
        let [a, b, c] = [a, b, c].map(|x| f64::from(Self::wide(x)));
        // The product of two narrow numbers is exact in f64; Knuth's sum gives what the addition loses.
        let product = a * b;
        let sum = product + c;
        let back = sum - product;
        let lost = (product - (sum - back)) + (c - back);
        let near = sum as f32;
        let rest = (sum - f64::from(near)) + lost;
        let odd = match near.is_finite() && rest != 0.0 && near.to_bits() & 1 == 0 {
            true if (rest > 0.0) == (near >= 0.0) => f32::from_bits(near.to_bits() + 1),
            true => f32::from_bits(near.to_bits() - 1),
            false => near,
        };
        Self::narrow(odd)
    }
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
}

impl Narrow for Bf16 {
    fn wide(bits: u16) -> f32 {
        bf16::from_bits(bits).to_f32()
    }
    fn narrow(value: f32) -> u16 {
        if value.is_nan() { 0x7FFF } else { bf16::from_f32(value).to_bits() }
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

/// What becomes of a result.
const PLAIN: u8 = 0;
const RELU: u8 = 1;
const SATURATE: u8 = 2;

fn finish<T: Narrow, const MODE: u8>(bits: u16) -> u16 {
    let value = T::wide(bits);
    match MODE {
        RELU if value.is_sign_negative() && !value.is_nan() => 0,
        SATURATE if value.is_nan() => 0,
        SATURATE => T::narrow(value.clamp(0.0, 1.0) + 0.0),
        _ => bits,
    }
}

fn of<T: Narrow, const MODE: u8>(root: &str, modes: &Modes, two: bool) -> Option<(Map, u8)> {
    macro_rules! both {
        ($count:literal, |$a:ident, $b:ident, $c:ident| $e:expr) => {{
            fn one<T: Narrow, const MODE: u8>(d: &mut Lanes, a: &Lanes, b: &Lanes, c: &Lanes) {
                pair(d, [a, b, c], 1, |$a, $b, $c| finish::<T, MODE>($e));
            }
            fn two_of<T: Narrow, const MODE: u8>(d: &mut Lanes, a: &Lanes, b: &Lanes, c: &Lanes) {
                pair(d, [a, b, c], 2, |$a, $b, $c| finish::<T, MODE>($e));
            }
            Some((if two { two_of::<T, MODE> as Map } else { one::<T, MODE> as Map }, $count))
        }};
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
    let two = matches!(t, Type::F16x2 | Type::Bf16x2);
    match (matches!(t, Type::F16 | Type::F16x2), modes.has("relu"), modes.has("sat")) {
        (true, false, false) => of::<F16, PLAIN>(root, modes, two),
        (true, true, false) if root == "fma" => of::<F16, RELU>(root, modes, two),
        (true, false, true) if matches!(root, "add" | "sub" | "mul" | "fma") => of::<F16, SATURATE>(root, modes, two),
        (false, false, false) => of::<Bf16, PLAIN>(root, modes, two),
        (false, true, false) if root == "fma" => of::<Bf16, RELU>(root, modes, two),
        _ => None,
    }
}
