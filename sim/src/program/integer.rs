//! Arithmetic and logic on integers, and bit fields.

use super::alu::{Modes, lanes};
use super::op::{Lanes, Map};

pub fn integer16(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
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

pub fn integer32(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
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
        "bfind" if modes.has("shiftamt") && signed => lanes!(|a| shift_amount((a as i32 ^ a as i32 >> 31) as u32)),
        "bfind" if modes.has("shiftamt") => lanes!(|a| shift_amount(a as u32)),
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
        "prmt" => prmt(modes),
        "bmsk" if modes.has("wrap") => lanes!(|a, b| ones((b & 31) as u32) << (a & 31)),
        "bmsk" => lanes!(|a, b| ones((b as u32).min(32)).checked_shl(a as u32).unwrap_or(0)),
        "shf" if modes.has("l") && modes.has("wrap") => lanes!(|a, b, c| funnel(a, b, (c & 31) as u32, true)),
        "shf" if modes.has("l") => lanes!(|a, b, c| funnel(a, b, (c as u32).min(32), true)),
        "shf" if modes.has("r") && modes.has("wrap") => lanes!(|a, b, c| funnel(a, b, (c & 31) as u32, false)),
        "shf" => lanes!(|a, b, c| funnel(a, b, (c as u32).min(32), false)),
        _ => None,
    }
}

/// How far the highest one is from the top; all ones if there is none.
fn shift_amount(x: u32) -> u32 {
    if x == 0 { u32::MAX } else { x.leading_zeros() }
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

/// PTX ISA, "prmt": the modes are selections that depend on the low bits of `c` alone.
fn prmt(modes: &Modes) -> Option<(Map, u8)> {
    match modes.0.iter().find(|m| super::alu::SELECTIONS.contains(m)) {
        None => lanes!(|a, b, c| permute(a as u32, b as u32, c as u32)),
        Some(&"f4e") => lanes!(|a, b, c| permute(a as u32, b as u32, 0x3210 + 0x1111 * (c & 3) as u32)),
        Some(&"b4e") => {
            lanes!(|a, b, c| permute(a as u32, b as u32, [0x5670, 0x6701, 0x7012, 0x0123][(c & 3) as usize]))
        }
        Some(&"rc8") => lanes!(|a, b, c| permute(a as u32, b as u32, 0x1111 * (c & 3) as u32)),
        Some(&"ecl") => {
            lanes!(|a, b, c| permute(a as u32, b as u32, [0x3210, 0x3211, 0x3222, 0x3333][(c & 3) as usize]))
        }
        Some(&"ecr") => {
            lanes!(|a, b, c| permute(a as u32, b as u32, [0x0000, 0x1110, 0x2210, 0x3210][(c & 3) as usize]))
        }
        Some(_) => lanes!(|a, b, c| permute(a as u32, b as u32, [0x1010, 0x3232][(c & 1) as usize])),
    }
}

pub fn permute(a: u32, b: u32, selector: u32) -> u32 {
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
pub fn funnel(a: u64, b: u64, shift: u32, left: bool) -> u32 {
    let both = u64::from(a as u32) | u64::from(b as u32) << 32;
    if left { (both << shift >> 32) as u32 } else { (both >> shift) as u32 }
}

pub fn integer64(root: &str, modes: &Modes, signed: bool) -> Option<(Map, u8)> {
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
        ("bfind", _) if modes.has("shiftamt") => None,
        ("bfind", false) => lanes!(|a| 63u32.wrapping_sub(a.leading_zeros())),
        ("bfe", false) => lanes!(|a, b, c| {
            let mask = 1u64.checked_shl((c & 255) as u32).unwrap_or(0).wrapping_sub(1);
            a.checked_shr((b & 255) as u32).unwrap_or(0) & mask
        }),
        _ => None,
    }
}
