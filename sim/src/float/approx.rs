//! Models of the approximate functions (PTX ISA 9.7.3.15 to 9.7.3.21 and half-precision `ex2`, `tanh`).
//!
//! The ISA bounds their error and fixes special values; the bits are not specified. [`Approx::Hopper`] gives those of
//! an H200 where they are known, [`Approx::Rounded`] the value rounded to nearest, and [`Approx::Perturbed`] moves that
//! by up to one unit in the last place, the same for equal inputs, so that a program which leans on exact bits shows.

use super::interpolation;

/// Which value within the bound a function returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approx {
    /// That of an H200 for 2^x, log2(x) and 1/x; the nearest one for the others.
    #[default]
    Hopper,
    /// The nearest one.
    Rounded,
    /// One that a hash of the seed, the function and the input chooses among the nearest and its neighbours.
    Perturbed(u64),
}

/// An approximate f32 function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// 2^x.
    Ex2,
    /// Binary logarithm.
    Lg2,
    /// 1 / x.
    Rcp,
    /// 1 / sqrt(x).
    Rsqrt,
    /// Square root.
    Sqrt,
    /// Hyperbolic tangent.
    Tanh,
    /// Sine, in radians.
    Sin,
    /// Cosine, in radians.
    Cos,
}

/// Zero of the same sign in place of a subnormal.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

impl Approx {
    /// `function.approx{.ftz}.f32`.
    pub fn f32(self, function: Function, x: f32, ftz: bool) -> f32 {
        let x = if ftz { flush(x) } else { x };
        if self == Approx::Hopper && x.is_finite() {
            let value = match function {
                Function::Ex2 if !x.is_subnormal() => Some(interpolation::ex2(x)),
                Function::Lg2 if x > 0.0 => Some(interpolation::lg2(x)),
                Function::Rcp if x.is_normal() => Some(interpolation::rcp(x)),
                _ => None,
            };
            if let Some(value) = value {
                return if ftz { flush(value) } else { value };
            }
        }
        let wide = x as f64;
        let exact = match function {
            Function::Ex2 if x.is_subnormal() => 1.0,
            Function::Ex2 => wide.exp2(),
            Function::Lg2 => wide.log2(),
            Function::Rcp => 1.0 / wide,
            // IEEE gives -0 for the root of -0, whose reciprocal is the -inf of the ISA.
            Function::Rsqrt => 1.0 / wide.sqrt(),
            Function::Sqrt => wide.sqrt(),
            Function::Tanh => wide.tanh(),
            Function::Sin => wide.sin(),
            Function::Cos => wide.cos(),
        };
        let value = if exact.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { self.perturb(function, x, exact) };
        if ftz { flush(value) } else { value }
    }

    fn perturb(self, function: Function, x: f32, exact: f64) -> f32 {
        let value = exact as f32;
        let Approx::Perturbed(seed) = self else { return value };
        // Special values, and results that hardware has exactly, stay: powers of two and the ends of the range.
        if value as f64 == exact
            || !value.is_normal()
            || value.abs() >= f32::MAX
            || (function == Function::Tanh && value.abs() == 1.0)
        {
            return value;
        }
        let mut hash = seed ^ (x.to_bits() as u64) << 8 ^ function as u64;
        hash = (hash ^ hash >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        // Toward the exact value first, so that the error stays below one unit.
        let toward = if exact.abs() > value.abs() as f64 { 1 } else { -1i32 };
        match hash >> 62 {
            0 => f32::from_bits(value.to_bits().wrapping_add_signed(toward)),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Function; 8] = [
        Function::Ex2,
        Function::Lg2,
        Function::Rcp,
        Function::Rsqrt,
        Function::Sqrt,
        Function::Tanh,
        Function::Sin,
        Function::Cos,
    ];

    fn inputs() -> impl Iterator<Item = f32> {
        (0..20_000).map(|i| -20.0 + i as f32 * 0.002 + 1e-5)
    }

    #[test]
    fn special_values() {
        for model in [Approx::Hopper, Approx::Rounded, Approx::Perturbed(7)] {
            let f = |function, x| model.f32(function, x, true);
            assert_eq!(f(Function::Ex2, f32::NEG_INFINITY).to_bits(), 0);
            assert_eq!(f(Function::Ex2, -200.0).to_bits(), 0);
            assert_eq!((f(Function::Ex2, 0.0), f(Function::Ex2, 1e-40), f(Function::Ex2, -3.0)), (1.0, 1.0, 0.125));
            assert_eq!((f(Function::Ex2, 128.0), f(Function::Ex2, f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
            assert_eq!((f(Function::Lg2, 0.0), f(Function::Lg2, -1e-40)), (f32::NEG_INFINITY, f32::NEG_INFINITY));
            assert!(
                f(Function::Lg2, -1.0).is_nan()
                    && f(Function::Rsqrt, -1.0).is_nan()
                    && f(Function::Sqrt, -1.0).is_nan()
            );
            assert_eq!((f(Function::Rcp, -0.0), f(Function::Rcp, 4.0)), (f32::NEG_INFINITY, 0.25));
            assert_eq!(f(Function::Rcp, f32::NEG_INFINITY).to_bits(), (-0f32).to_bits());
            assert_eq!((f(Function::Rsqrt, -0.0), f(Function::Rsqrt, f32::INFINITY)), (f32::NEG_INFINITY, 0.0));
            assert_eq!(f(Function::Sqrt, -0.0).to_bits(), (-0f32).to_bits());
            assert_eq!((f(Function::Tanh, 40.0), f(Function::Tanh, f32::NEG_INFINITY)), (1.0, -1.0));
            assert!(f(Function::Sin, f32::INFINITY).is_nan() && f(Function::Ex2, f32::NAN).is_nan());
        }
        assert_eq!(Approx::Rounded.f32(Function::Ex2, -127.0, true), 0.0);
        assert_eq!(Approx::Rounded.f32(Function::Ex2, -127.0, false), 2f32.powi(-127));
    }

    #[test]
    fn both_models_stay_within_a_unit_in_the_last_place() {
        let mut moved = 0;
        for function in ALL {
            for x in inputs() {
                let rounded = Approx::Rounded.f32(function, x, false);
                let perturbed = Approx::Perturbed(3).f32(function, x, false);
                assert_eq!(perturbed.to_bits(), Approx::Perturbed(3).f32(function, x, false).to_bits());
                if rounded.is_nan() {
                    assert!(perturbed.is_nan());
                    continue;
                }
                assert!(rounded.to_bits().abs_diff(perturbed.to_bits()) <= 1, "{function:?} {x}");
                moved += (rounded != perturbed) as u32;
            }
        }
        assert!(moved > 10_000);
    }
}
