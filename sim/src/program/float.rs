//! Arithmetic on f32, f64 and pairs of f32.

use super::alu::{Modes, lanes};
use super::op::{Lanes, Map};
use crate::float::{Approx, Function};

pub fn f32_of(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

pub fn f64_of(x: u64) -> f64 {
    f64::from_bits(x)
}

/// Subnormal values become zero with their sign.
pub fn ftz(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

fn approx(function: Function, x: f32) -> f32 {
    Approx::Hopper.f32(function, x, false)
}

fn clamp(x: f32) -> f32 {
    if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) }
}

const NAN32: u32 = 0x7FFF_FFFF;

fn nan32(x: f32) -> u32 {
    if x.is_nan() { NAN32 } else { x.to_bits() }
}

/// PTX ISA, "min", "max": a number wins against NaN, unless `.NaN`; -0 < +0.
pub fn minimum(a: f32, b: f32, nan: bool, larger: bool) -> f32 {
    if a.is_nan() || b.is_nan() {
        return if nan || a.is_nan() && b.is_nan() {
            f32::from_bits(NAN32)
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    let first = a < b || a == b && a.is_sign_negative();
    if first != larger { a } else { b }
}

pub fn float32(root: &str, modes: &Modes) -> Option<(Map, u8)> {
    let (flush, sat) = (modes.has("ftz"), modes.has("sat"));
    macro_rules! arithmetic {
        (|$($v:ident),+| $e:expr) => {
            match (flush, sat) {
                (false, false) => lanes!(|$($v),+| { $(let $v = f32_of($v);)+ nan32($e) }),
                (true, false) => lanes!(|$($v),+| { $(let $v = ftz(f32_of($v));)+ nan32(ftz($e)) }),
                (false, true) => lanes!(|$($v),+| { $(let $v = f32_of($v);)+ clamp($e).to_bits() }),
                (true, true) => lanes!(|$($v),+| { $(let $v = ftz(f32_of($v));)+ clamp(ftz($e)).to_bits() }),
            }
        };
    }
    if modes.directed() {
        return directed32(root, modes);
    }
    match (root, modes.has("NaN"), modes.has("approx")) {
        ("add", ..) => arithmetic!(|a, b| a + b),
        ("sub", ..) => arithmetic!(|a, b| a - b),
        ("mul", ..) => arithmetic!(|a, b| a * b),
        ("fma" | "mad", ..) => arithmetic!(|a, b, c| a.mul_add(b, c)),
        ("div", ..) => arithmetic!(|a, b| a / b),
        ("rcp", _, true) => arithmetic!(|a| approx(Function::Rcp, a)),
        ("rcp", ..) => arithmetic!(|a| 1.0 / a),
        ("sqrt", _, true) => arithmetic!(|a| approx(Function::Sqrt, a)),
        ("sqrt", ..) => arithmetic!(|a| a.sqrt()),
        ("rsqrt", ..) => arithmetic!(|a| approx(Function::Rsqrt, a)),
        ("ex2", ..) => arithmetic!(|a| approx(Function::Ex2, a)),
        ("lg2", ..) => arithmetic!(|a| approx(Function::Lg2, a)),
        ("sin", ..) => arithmetic!(|a| approx(Function::Sin, a)),
        ("cos", ..) => arithmetic!(|a| approx(Function::Cos, a)),
        ("tanh", ..) => arithmetic!(|a| approx(Function::Tanh, a)),
        ("neg", ..) if flush => lanes!(|a| ftz(f32_of(a)).to_bits() ^ 1 << 31),
        ("neg", ..) => lanes!(|a| a as u32 ^ 1 << 31),
        ("abs", ..) if flush => lanes!(|a| ftz(f32_of(a)).to_bits() & !(1 << 31)),
        ("abs", ..) => lanes!(|a| a as u32 & !(1 << 31)),
        ("min", false, _) => arithmetic!(|a, b| minimum(a, b, false, false)),
        ("min", true, _) => arithmetic!(|a, b| minimum(a, b, true, false)),
        ("max", false, _) => arithmetic!(|a, b| minimum(a, b, false, true)),
        ("max", true, _) => arithmetic!(|a, b| minimum(a, b, true, true)),
        ("copysign", ..) => lanes!(|a, b| b as u32 & !(1 << 31) | a as u32 & 1 << 31),
        _ => None,
    }
}

/// Sums and products that are rounded towards zero, down or up.
fn directed32(root: &str, modes: &Modes) -> Option<(Map, u8)> {
    if modes.has("ftz") || modes.has("sat") {
        return None;
    }
    macro_rules! directed {
        (|$($v:ident),+| $e:expr) => {
            match (modes.has("rz"), modes.has("rm")) {
                (true, _) => {
                    lanes!(|$($v),+| rounded(($e), |near, rest| near > 0.0 && rest < 0.0 || near < 0.0 && rest > 0.0))
                }
                (_, true) => lanes!(|$($v),+| rounded(($e), |_, rest| rest < 0.0)),
                _ => lanes!(|$($v),+| rounded(($e), |_, rest| rest > 0.0)),
            }
        };
    }
    match root {
        "add" => directed!(|a, b| sum(wide(a), wide(b))),
        "sub" => directed!(|a, b| sum(wide(a), -wide(b))),
        "mul" => directed!(|a, b| (wide(a) * wide(b), 0.0)),
        "fma" => directed!(|a, b, c| sum(wide(a) * wide(b), wide(c))),
        _ => None,
    }
}

fn wide(x: u64) -> f64 {
    f32_of(x).into()
}

/// The sum in f64 and what is missing from it (Knuth's sum; products of two f32 are exact in f64).
fn sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let back = sum - a;
    (sum, (a - (sum - back)) + (b - back))
}

/// The neighbour of the nearest f32 if `wanted` says so of it and of what is missing from it.
fn rounded((value, lost): (f64, f64), wanted: fn(f32, f64) -> bool) -> u32 {
    let near = value as f32;
    if near.is_nan() || value.is_infinite() {
        return nan32(near);
    }
    let rest = if near.is_infinite() { -f64::from(near) } else { (value - f64::from(near)) + lost };
    if rest == 0.0 || !wanted(near, rest) {
        return near.to_bits();
    }
    if rest > 0.0 { near.next_up().to_bits() } else { near.next_down().to_bits() }
}

pub fn float64(root: &str) -> Option<(Map, u8)> {
    match root {
        "add" => lanes!(|a, b| (f64_of(a) + f64_of(b)).to_bits()),
        "sub" => lanes!(|a, b| (f64_of(a) - f64_of(b)).to_bits()),
        "mul" => lanes!(|a, b| (f64_of(a) * f64_of(b)).to_bits()),
        "fma" | "mad" => lanes!(|a, b, c| f64_of(a).mul_add(f64_of(b), f64_of(c)).to_bits()),
        "div" => lanes!(|a, b| (f64_of(a) / f64_of(b)).to_bits()),
        "sqrt" => lanes!(|a| f64_of(a).sqrt().to_bits()),
        "rcp" => lanes!(|a| (1.0 / f64_of(a)).to_bits()),
        "neg" => lanes!(|a| a ^ 1 << 63),
        "abs" => lanes!(|a| a & !(1 << 63)),
        "min" => lanes!(|a, b| f64_of(a).min(f64_of(b)).to_bits()),
        "max" => lanes!(|a, b| f64_of(a).max(f64_of(b)).to_bits()),
        _ => None,
    }
}

pub fn float32x2(root: &str) -> Option<(Map, u8)> {
    macro_rules! packed {
        (|$($v:ident),+| $e:expr) => {
            lanes!(|$($v),+| {
                let low = { $(let $v = f32_of($v);)+ nan32($e) };
                let high = { $(let $v = f32_of($v >> 32);)+ nan32($e) };
                u64::from(low) | u64::from(high) << 32
            })
        };
    }
    match root {
        "add" => packed!(|a, b| a + b),
        "sub" => packed!(|a, b| a - b),
        "mul" => packed!(|a, b| a * b),
        "fma" => packed!(|a, b, c| a.mul_add(b, c)),
        _ => None,
    }
}
