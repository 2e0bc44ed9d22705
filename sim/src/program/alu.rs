//! Arithmetic and logic: an opcode becomes a function over the lanes of a warp.

use super::float::{float32, float32x2, float64};
use super::half::half;
use super::integer::{integer16, integer32, integer64};
use super::op::Map;
use super::types::Type;

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

/// Modes of `prmt`.
pub const SELECTIONS: [&str; 6] = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];

/// The function of `root` with its qualifiers on this type, and how many registers it reads.
pub fn map(root: &str, modes: &Modes, t: Type) -> Option<(Map, u8)> {
    use Type::*;
    // Qualifiers of some instructions only; on others they must not pass unseen.
    let selects = modes.0.iter().any(|m| SELECTIONS.contains(m));
    if selects && root != "prmt"
        || modes.directed() && t != F32
        || modes.has("relu") && !matches!(t, F16 | Bf16 | F16x2 | Bf16x2)
    {
        return None;
    }
    match t {
        F32 => float32(root, modes),
        F64 => float64(root),
        F16 | Bf16 | F16x2 | Bf16x2 => half(root, modes, t),
        U16 | S16 | B16 => integer16(root, modes, t.signed()),
        U32 | S32 | B32 => integer32(root, modes, t.signed()),
        U64 | S64 | B64 => integer64(root, modes, t.signed()),
        F32x2 => float32x2(root),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::compare;
    use super::super::integer::{funnel, insert, lop3, permute};
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
