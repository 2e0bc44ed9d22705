//! Arithmetic, logic and comparison: an opcode becomes a function over the lanes of a warp.

use super::half::half;
use super::op::{Compare, Lanes, Map};
use super::types::Type;
use crate::float::{Approx, Function};

/// A function of one, two or three registers; lanes that are not active are computed and thrown away.
macro_rules! lanes {
    (|$a:ident| $e:expr) => {{
        fn f(d: &mut Lanes, a: &Lanes, _: &Lanes, _: &Lanes) {
            for i in 0..32 {
                let $a = a[i];
                d[i] = ($e) as u64;
            }
        }
        Some((f as Map, 1))
    }};
    (|$a:ident, $b:ident| $e:expr) => {{
        fn f(d: &mut Lanes, a: &Lanes, b: &Lanes, _: &Lanes) {
            for i in 0..32 {
                let ($a, $b) = (a[i], b[i]);
                d[i] = ($e) as u64;
            }
        }
        Some((f as Map, 2))
    }};
    (|$a:ident, $b:ident, $c:ident| $e:expr) => {{
        fn f(d: &mut Lanes, a: &Lanes, b: &Lanes, c: &Lanes) {
            for i in 0..32 {
                let ($a, $b, $c) = (a[i], b[i], c[i]);
                d[i] = ($e) as u64;
            }
        }
        Some((f as Map, 3))
    }};
}
pub(super) use lanes;

pub fn f32_of(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn f64_of(x: u64) -> f64 {
    f64::from_bits(x)
}

/// Subnormal values become zero with their sign.
pub fn ftz(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

fn approx(function: Function, x: f32) -> f32 {
    Approx::Rounded.f32(function, x, false)
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

/// Qualifiers that change a floating-point operation.
pub struct Modes<'a>(pub &'a [&'a str]);

impl Modes<'_> {
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// Rounding other than to nearest even.
    pub fn directed(&self) -> bool {
        ["rz", "rm", "rp"].iter().any(|r| self.has(r))
    }
}

/// The function of `root` with its qualifiers on this type, and how many registers it reads.
pub fn map(root: &str, modes: &Modes, t: Type) -> Option<(Map, u8)> {
    use Type::*;
    match t {
        F32 => float32(root, modes),
        F64 if !modes.directed() => float64(root),
        F16 | Bf16 | F16x2 | Bf16x2 => half(root, modes, t),
        U16 | S16 | B16 => integer16(root, modes, t.signed()),
        U32 | S32 | B32 => integer32(root, modes, t.signed()),
        U64 | S64 | B64 => integer64(root, modes, t.signed()),
        F32x2 if !modes.directed() => float32x2(root),
        _ => None,
    }
}

fn float32(root: &str, modes: &Modes) -> Option<(Map, u8)> {
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
        return match root {
            // The sum and product of two floats are exact, or nearly so, in double; rounding towards zero is a truncation.
            "add" if modes.has("rz") => lanes!(|a, b| float_rz(f64::from(f32_of(a)) + f64::from(f32_of(b)))),
            "mul" if modes.has("rz") => lanes!(|a, b| float_rz(f64::from(f32_of(a)) * f64::from(f32_of(b)))),
            _ => None,
        };
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

fn float_rz(exact: f64) -> u32 {
    let near = exact as f32;
    if near.is_finite() && f64::from(near).abs() > exact.abs() { near.to_bits() - 1 } else { nan32(near) }
}

fn float64(root: &str) -> Option<(Map, u8)> {
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

fn float32x2(root: &str) -> Option<(Map, u8)> {
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

fn integer16(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
    match (root, signed) {
        ("add", _) => lanes!(|a, b| a.wrapping_add(b) as u16),
        ("sub", _) => lanes!(|a, b| a.wrapping_sub(b) as u16),
        ("mul", true) if modes.has("wide") => lanes!(|a, b| (i32::from(a as i16) * i32::from(b as i16)) as u32),
        ("mul", false) if modes.has("wide") => lanes!(|a, b| u32::from(a as u16) * u32::from(b as u16)),
        ("mul", _) if modes.has("lo") => lanes!(|a, b| (a as u16).wrapping_mul(b as u16)),
        ("mad", true) if modes.has("wide") => {
            lanes!(|a, b, c| (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32)
        }
        ("mad", false) if modes.has("wide") => {
            lanes!(|a, b, c| (u32::from(a as u16) * u32::from(b as u16)).wrapping_add(c as u32))
        }
        ("mad", _) if modes.has("lo") => lanes!(|a, b, c| (a as u16).wrapping_mul(b as u16).wrapping_add(c as u16)),
        ("min", true) => lanes!(|a, b| (a as i16).min(b as i16) as u16),
        ("min", false) => lanes!(|a, b| (a as u16).min(b as u16)),
        ("max", true) => lanes!(|a, b| (a as i16).max(b as i16) as u16),
        ("max", false) => lanes!(|a, b| (a as u16).max(b as u16)),
        ("div", false) => lanes!(|a, b| (a as u16).checked_div(b as u16).unwrap_or(u16::MAX)),
        ("rem", false) => lanes!(|a, b| (a as u16).checked_rem(b as u16).unwrap_or(a as u16)),
        ("neg", _) => lanes!(|a| (a as u16).wrapping_neg()),
        ("and", _) => lanes!(|a, b| a & b),
        ("or", _) => lanes!(|a, b| a | b),
        ("xor", _) => lanes!(|a, b| a ^ b),
        ("not", _) => lanes!(|a| !a as u16),
        ("shl", _) => lanes!(|a, b| if b as u32 > 15 { 0 } else { (a << b) as u16 }),
        ("shr", true) => lanes!(|a, b| (a as i16 >> (b as u32).min(15)) as u16),
        ("shr", false) => lanes!(|a, b| if b as u32 > 15 { 0 } else { a as u16 >> b as u32 }),
        _ => None,
    }
}

fn integer32(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
    macro_rules! by_sign {
        (|$($v:ident),+| $e:expr) => {
            match signed {
                true => lanes!(|$($v),+| { $(let $v = $v as i32;)+ ($e) as u32 }),
                false => lanes!(|$($v),+| { $(let $v = $v as u32;)+ $e }),
            }
        };
    }
    let (wide, high) = (modes.has("wide"), modes.has("hi"));
    match root {
        "add" if modes.has("sat") => by_sign!(|a, b| a.saturating_add(b)),
        "sub" if modes.has("sat") => by_sign!(|a, b| a.saturating_sub(b)),
        "add" => lanes!(|a, b| (a as u32).wrapping_add(b as u32)),
        "sub" => lanes!(|a, b| (a as u32).wrapping_sub(b as u32)),
        "mul" if wide && signed => lanes!(|a, b| i64::from(a as i32) * i64::from(b as i32)),
        "mul" if wide => lanes!(|a, b| u64::from(a as u32) * u64::from(b as u32)),
        "mul" if high && signed => lanes!(|a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        "mul" if high => lanes!(|a, b| (u64::from(a as u32) * u64::from(b as u32)) >> 32),
        "mul" => lanes!(|a, b| (a as u32).wrapping_mul(b as u32)),
        "mul24" if !signed => lanes!(|a, b| (a as u32 & 0xFF_FFFF).wrapping_mul(b as u32 & 0xFF_FFFF)),
        "mad" if wide && signed => lanes!(|a, b, c| (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64)),
        "mad" if wide => lanes!(|a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)),
        "mad" if high && signed => {
            lanes!(|a, b, c| (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32).wrapping_add(c as u32))
        }
        "mad" if high => {
            lanes!(|a, b, c| (((u64::from(a as u32) * u64::from(b as u32)) >> 32) as u32).wrapping_add(c as u32))
        }
        "mad" => lanes!(|a, b, c| (a as u32).wrapping_mul(b as u32).wrapping_add(c as u32)),
        "sad" => lanes!(|a, b, c| (a as u32).abs_diff(b as u32).wrapping_add(c as u32)),
        // A zero divisor gives all ones, as compiled code does; the ISA leaves it open.
        "div" if signed => {
            lanes!(|a, b| if b as u32 == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 })
        }
        "div" => lanes!(|a, b| (a as u32).checked_div(b as u32).unwrap_or(u32::MAX)),
        "rem" if signed => {
            lanes!(|a, b| if b as u32 == 0 { a as u32 } else { (a as i32).wrapping_rem(b as i32) as u32 })
        }
        "rem" => lanes!(|a, b| (a as u32).checked_rem(b as u32).unwrap_or(a as u32)),
        "min" => by_sign!(|a, b| a.min(b)),
        "max" => by_sign!(|a, b| a.max(b)),
        "neg" => lanes!(|a| (a as u32).wrapping_neg()),
        "abs" => lanes!(|a| (a as i32).unsigned_abs()),
        "and" => lanes!(|a, b| a & b),
        "or" => lanes!(|a, b| a | b),
        "xor" => lanes!(|a, b| a ^ b),
        "not" => lanes!(|a| !a as u32),
        "cnot" => lanes!(|a| u32::from(a as u32 == 0)),
        "shl" => lanes!(|a, b| (a as u32).checked_shl(b as u32).unwrap_or(0)),
        "shr" if signed => lanes!(|a, b| (a as i32 >> (b as u32).min(31)) as u32),
        "shr" => lanes!(|a, b| (a as u32).checked_shr(b as u32).unwrap_or(0)),
        "popc" => lanes!(|a| (a as u32).count_ones()),
        "clz" => lanes!(|a| (a as u32).leading_zeros()),
        "brev" => lanes!(|a| (a as u32).reverse_bits()),
        "bfind" if signed => lanes!(|a| {
            let x = if (a as i32) < 0 { !a as u32 } else { a as u32 };
            31u32.wrapping_sub(x.leading_zeros())
        }),
        "bfind" => lanes!(|a| 31u32.wrapping_sub((a as u32).leading_zeros())),
        "bfe" if !signed => lanes!(|a, b, c| field(a as u32, b, c)),
        "bfe" => lanes!(|a, b, c| {
            let (position, length) = ((b & 255) as u32, (c & 255) as u32);
            let top = (position + length.max(1) - 1).min(31);
            let sign = if length > 0 && a >> top & 1 == 1 { u32::MAX } else { 0 };
            let mask = ones(length);
            (a as u32).checked_shr(position).unwrap_or(0) & mask & ones(32u32.saturating_sub(position))
                | sign & !ones(length.min(32u32.saturating_sub(position)))
        }),
        "prmt" if modes.0.len() <= 1 => lanes!(|a, b, c| permute(a as u32, b as u32, c as u32)),
        "shf" if modes.has("l") && modes.has("wrap") => lanes!(|a, b, c| funnel(a, b, (c & 31) as u32, true)),
        "shf" if modes.has("l") => lanes!(|a, b, c| funnel(a, b, (c as u32).min(32), true)),
        "shf" if modes.has("r") && modes.has("wrap") => lanes!(|a, b, c| funnel(a, b, (c & 31) as u32, false)),
        "shf" => lanes!(|a, b, c| funnel(a, b, (c as u32).min(32), false)),
        _ => None,
    }
}

fn ones(count: u32) -> u32 {
    1u32.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}

fn field(a: u32, position: u64, length: u64) -> u32 {
    a.checked_shr((position & 255) as u32).unwrap_or(0) & ones((length & 255) as u32)
}

/// PTX ISA, "bfi": inserts the low `length` bits of `a` into `b`.
pub fn insert(a: u64, b: u64, position: u64, length: u64, bits: u32) -> u64 {
    let (position, length) = ((position & 255) as u32, (length & 255) as u32);
    let all = u64::MAX >> (64 - bits);
    let mask = 1u64.checked_shl(length).unwrap_or(0).wrapping_sub(1).checked_shl(position).unwrap_or(0) & all;
    b & !mask & all | a.checked_shl(position).unwrap_or(0) & mask
}

/// PTX ISA, "lop3": bit i of the table is the result for the inputs i = 4a + 2b + c.
pub fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for i in 0..8 {
        if table >> i & 1 == 1 {
            let pick = |x: u32, bit: u32| if i >> bit & 1 == 1 { x } else { !x };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    (0..4).fold(0, |out, i| {
        let select = selector >> (4 * i) & 15;
        let byte = (bytes >> (8 * (select & 7)) & 255) as u32;
        let byte = if select & 8 == 0 {
            byte
        } else if byte & 128 == 0 {
            0
        } else {
            255
        };
        out | byte << (8 * i)
    })
}

/// `a` is the low word.
fn funnel(a: u64, b: u64, shift: u32, left: bool) -> u32 {
    let both = u64::from(a as u32) | u64::from(b as u32) << 32;
    if left { (both << shift >> 32) as u32 } else { (both >> shift) as u32 }
}

fn integer64(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
    let high = modes.has("hi");
    match (root, signed) {
        ("add", _) => lanes!(|a, b| a.wrapping_add(b)),
        ("sub", _) => lanes!(|a, b| a.wrapping_sub(b)),
        ("mul", true) if high => lanes!(|a, b| (i128::from(a as i64) * i128::from(b as i64)) >> 64),
        ("mul", false) if high => lanes!(|a, b| (u128::from(a) * u128::from(b)) >> 64),
        ("mul", _) => lanes!(|a, b| a.wrapping_mul(b)),
        ("mad", _) if !high => lanes!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("div", true) => lanes!(|a, b| if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 }),
        ("div", false) => lanes!(|a, b| a.checked_div(b).unwrap_or(u64::MAX)),
        ("rem", true) => lanes!(|a, b| if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }),
        ("rem", false) => lanes!(|a, b| a.checked_rem(b).unwrap_or(a)),
        ("min", true) => lanes!(|a, b| (a as i64).min(b as i64)),
        ("min", false) => lanes!(|a, b| a.min(b)),
        ("max", true) => lanes!(|a, b| (a as i64).max(b as i64)),
        ("max", false) => lanes!(|a, b| a.max(b)),
        ("neg", _) => lanes!(|a| a.wrapping_neg()),
        ("abs", _) => lanes!(|a| (a as i64).unsigned_abs()),
        ("and", _) => lanes!(|a, b| a & b),
        ("or", _) => lanes!(|a, b| a | b),
        ("xor", _) => lanes!(|a, b| a ^ b),
        ("not", _) => lanes!(|a| !a),
        ("shl", _) => lanes!(|a, b| a.checked_shl(b as u32).unwrap_or(0)),
        ("shr", true) => lanes!(|a, b| a as i64 >> (b as u32).min(63)),
        ("shr", false) => lanes!(|a, b| a.checked_shr(b as u32).unwrap_or(0)),
        ("popc", _) => lanes!(|a| a.count_ones()),
        ("clz", _) => lanes!(|a| a.leading_zeros()),
        ("brev", _) => lanes!(|a| a.reverse_bits()),
        ("bfind", false) => lanes!(|a| 63u32.wrapping_sub(a.leading_zeros())),
        ("bfe", false) => lanes!(|a, b, c| {
            let mask = 1u64.checked_shl((c & 255) as u32).unwrap_or(0).wrapping_sub(1);
            a.checked_shr((b & 255) as u32).unwrap_or(0) & mask
        }),
        _ => None,
    }
}

fn unordered(a: f64, b: f64) -> bool {
    a.is_nan() || b.is_nan()
}

/// The comparison `name` ("lt", "geu", ...) on this type.
pub fn compare(name: &str, t: Type) -> Option<Compare> {
    use Type::*;
    macro_rules! mask {
        (|$a:ident, $b:ident| $e:expr) => {{
            fn f(a: &Lanes, b: &Lanes) -> u32 {
                let mut mask = 0;
                for i in 0..32 {
                    let ($a, $b) = (a[i], b[i]);
                    mask |= u32::from($e) << i;
                }
                mask
            }
            Some(f as Compare)
        }};
    }
    macro_rules! ordered {
        ($read:expr, $name:expr) => {
            match $name {
                "eq" => mask!(|a, b| $read(a) == $read(b)),
                "ne" => mask!(|a, b| $read(a) != $read(b)),
                "lt" | "lo" => mask!(|a, b| $read(a) < $read(b)),
                "le" | "ls" => mask!(|a, b| $read(a) <= $read(b)),
                "gt" | "hi" => mask!(|a, b| $read(a) > $read(b)),
                "ge" | "hs" => mask!(|a, b| $read(a) >= $read(b)),
                _ => None,
            }
        };
    }
    macro_rules! float {
        ($read:expr) => {
            match name {
                "equ" => mask!(|a, b| !($read(a) < $read(b) || $read(a) > $read(b))),
                "neu" => mask!(|a, b| $read(a) != $read(b)),
                "ne" => mask!(|a, b| $read(a) < $read(b) || $read(a) > $read(b)),
                "ltu" => mask!(|a, b| unordered($read(a) as f64, $read(b) as f64) || $read(a) < $read(b)),
                "leu" => mask!(|a, b| unordered($read(a) as f64, $read(b) as f64) || $read(a) <= $read(b)),
                "gtu" => mask!(|a, b| unordered($read(a) as f64, $read(b) as f64) || $read(a) > $read(b)),
                "geu" => mask!(|a, b| unordered($read(a) as f64, $read(b) as f64) || $read(a) >= $read(b)),
                "num" => mask!(|a, b| !$read(a).is_nan() && !$read(b).is_nan()),
                "nan" => mask!(|a, b| $read(a).is_nan() || $read(b).is_nan()),
                _ => ordered!($read, name),
            }
        };
    }
    match t {
        U16 | B16 | U8 | B8 => ordered!(|x: u64| x as u16, name),
        U32 | B32 => ordered!(|x: u64| x as u32, name),
        U64 | B64 => ordered!(|x: u64| x, name),
        S16 => ordered!(|x: u64| x as i16, name),
        S32 => ordered!(|x: u64| x as i32, name),
        S64 => ordered!(|x: u64| x as i64, name),
        F32 => float!(f32_of),
        F64 => float!(f64_of),
        F16 => float!(|x: u64| ::half::f16::from_bits(x as u16).to_f32()),
        Bf16 => float!(|x: u64| ::half::bf16::from_bits(x as u16).to_f32()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(root: &str, modes: &[&str], t: Type, s: [u64; 3]) -> u64 {
        let (f, _) = map(root, &Modes(modes), t).unwrap();
        let mut d = [0; 32];
        f(&mut d, &[s[0]; 32], &[s[1]; 32], &[s[2]; 32]);
        d[7]
    }

    #[test]
    fn integers_by_the_isa() {
        assert_eq!(eval("sub", &[], Type::S32, [1, 2, 0]), 0xFFFF_FFFF);
        assert_eq!(eval("shr", &[], Type::S32, [0x8000_0000, 40, 0]), 0xFFFF_FFFF);
        assert_eq!(eval("shl", &[], Type::B32, [1, 32, 0]), 0);
        assert_eq!(eval("mul", &["wide"], Type::S32, [u64::from(u32::MAX), 3, 0]), -3i64 as u64);
        assert_eq!(permute(0x4433_2211, 0x8877_6655, 0x7531), 0x8866_4422);
        assert_eq!(eval("bfe", &[], Type::S32, [0x0000_00F0, 4, 4]), 0xFFFF_FFFF);
        assert_eq!(eval("bfe", &[], Type::U32, [0x0000_00F0, 4, 4]), 15);
        assert_eq!(insert(0xFF, 0, 8, 4, 32), 0xF00);
        assert_eq!(lop3(0b1100, 0b1010, 0b0110, 0x96), 0b1100 ^ 0b1010 ^ 0b0110);
        assert_eq!(funnel(0x8000_0000, 1, 1, true), 3);
    }

    #[test]
    fn floats_by_the_isa() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(eval("max", &[], Type::F32, [bits(f32::NAN), bits(1.0), 0]), bits(1.0));
        assert_eq!(eval("max", &["NaN"], Type::F32, [bits(f32::NAN), bits(1.0), 0]), 0x7FFF_FFFF);
        assert_eq!(eval("min", &[], Type::F32, [bits(0.0), bits(-0.0), 0]), bits(-0.0));
        assert_eq!(eval("add", &["ftz"], Type::F32, [1, 1, 0]), 0);
        assert_eq!(compare("ltu", Type::F32).unwrap()(&[bits(f32::NAN); 32], &[bits(1.0); 32]), u32::MAX);
        assert_eq!(compare("ne", Type::F32).unwrap()(&[bits(f32::NAN); 32], &[bits(1.0); 32]), 0);
    }
}
