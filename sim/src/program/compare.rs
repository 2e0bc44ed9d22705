//! Comparisons: `setp`.

use super::float::{f32_of, f64_of};
use super::op::{Compare, Lanes};
use super::types::Type;

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
