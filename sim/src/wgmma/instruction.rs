//! `wgmma.mma_async` (PTX ISA 9.7.15.5): legality and the product.
//!
//! The ISA leaves order and rounding of the sums open; [`Arithmetic`] chooses.

use super::fragment::{AFragment, ROWS, Tile};
use crate::error::{Fault, Kind, Result};
use crate::float::{F16, Rounding};
use crate::matrix::{
    Element, Layout, Major, MatrixDescriptor, Packing, Rounded, SharedRead, Truncated, multiply_f32, multiply_s32,
};

/// Type of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum Accumulator {
    F32,
    F16,
    S32,
}

/// How floating-point sums are formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// As an H200 does, to the bit: see [`crate::matrix::Truncated`].
    #[default]
    Hopper,
    /// In f32, one product after the other: faster, for where only a tolerance matters.
    Sequential,
}

/// One `wgmma.mma_async`, dense: D (64 x n) = A (64 x k) B (k x n) + D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Columns.
    pub n: u32,
    /// Type of D.
    pub d: Accumulator,
    /// Type of A.
    pub a: Element,
    /// Type of B.
    pub b: Element,
    /// Negate A.
    pub negate_a: bool,
    /// Negate B.
    pub negate_b: bool,
    /// Contiguous index of A in shared memory.
    pub major_a: Major,
    /// Contiguous index of B.
    pub major_b: Major,
    /// `.satfinite` of integer products.
    pub satfinite: bool,
}

/// Where A comes from.
#[derive(Clone, Copy, Debug)]
pub enum OperandA<'a> {
    /// Shared memory.
    Shared(MatrixDescriptor),
    /// Registers.
    Registers(&'a AFragment),
}

impl Instruction {
    /// Depth: 32 bytes of elements.
    pub const fn k(&self) -> u32 {
        256 / self.a.bits()
    }

    /// 32-bit registers of D per thread.
    pub const fn accumulator_registers(&self) -> u32 {
        if matches!(self.d, Accumulator::F16) { self.n / 4 } else { self.n / 2 }
    }

    /// Checks types and shape.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`] for a combination that does not exist.
    pub fn check(&self) -> Result<()> {
        use Element::*;
        let types = matches!(
            (self.a, self.b, self.d),
            (F16, F16, Accumulator::F16 | Accumulator::F32)
                | (Bf16, Bf16, Accumulator::F32)
                | (Tf32, Tf32, Accumulator::F32)
                | (E4m3 | E5m2, E4m3 | E5m2, Accumulator::F16 | Accumulator::F32)
                | (S8 | U8, S8 | U8, Accumulator::S32)
        );
        let refuse = |what: String| Fault::err(Kind::InvalidOperand, format!("wgmma {what}"));
        if !types {
            return refuse(format!("of {:?} by {:?} into {:?}", self.a, self.b, self.d));
        }
        let steps = match self.n {
            8 | 24 => true,
            n if self.a.is_integer() => n.is_multiple_of(16),
            n => n.is_multiple_of(8),
        };
        if !steps || !(8..=256).contains(&self.n) {
            return refuse(format!("with n = {} for {:?}", self.n, self.a));
        }
        let sixteen = matches!(self.a, F16 | Bf16);
        if !sixteen && (self.major_a == Major::Mn || self.major_b == Major::Mn) {
            return refuse(format!("with a transposed operand of {:?}", self.a));
        }
        if self.a.is_integer() && (self.negate_a || self.negate_b) {
            return refuse("that negates integers".into());
        }
        if self.satfinite && !self.a.is_integer() {
            return refuse("with .satfinite on floating-point types".into());
        }
        Ok(())
    }

    /// [`Instruction::execute_with`] the arithmetic of the hardware.
    ///
    /// # Errors
    /// As there.
    pub fn execute<R: SharedRead>(
        &self,
        a: OperandA,
        b: MatrixDescriptor,
        scale_d: bool,
        memory: &mut R,
        tile: &mut Tile,
    ) -> Result<()> {
        self.execute_with(Arithmetic::default(), a, b, scale_d, memory, tile)
    }

    /// D = A B, plus D if `scale_d`. Reads both operands from `memory` now.
    ///
    /// # Errors
    /// Those of [`Instruction::check`]; [`Kind::Descriptor`] for a K step that leaves the swizzle span; those of the
    /// memory.
    pub fn execute_with<R: SharedRead>(
        &self,
        arithmetic: Arithmetic,
        a: OperandA,
        b: MatrixDescriptor,
        scale_d: bool,
        memory: &mut R,
        tile: &mut Tile,
    ) -> Result<()> {
        self.check()?;
        let (n, k) = (self.n as usize, self.k() as usize);
        let mut rows = vec![0f32; ROWS * k];
        match a {
            OperandA::Registers(fragment) if self.major_a == Major::K => fragment.rows(self.a, &mut rows),
            OperandA::Registers(_) => {
                return Fault::err(Kind::InvalidOperand, "wgmma transposes A only in shared memory");
            }
            OperandA::Shared(descriptor) => {
                let layout = Layout { descriptor, major: self.major_a, element: self.a, packing: Packing::Dense };
                layout.check_span(32)?;
                layout.read_rows(ROWS, k, memory, &mut rows)?;
            }
        }
        let mut columns = vec![0f32; k * n];
        let layout = Layout { descriptor: b, major: self.major_b, element: self.b, packing: Packing::Dense };
        layout.check_span(32)?;
        layout.read_columns(n, k, n, memory, &mut columns)?;
        if self.negate_a != self.negate_b {
            rows.iter_mut().for_each(|value| *value = -*value);
        }
        match tile {
            Tile::F32(d) if self.d != Accumulator::S32 && d.len() == ROWS * n => {
                if !scale_d {
                    d.fill(0.0);
                }
                match arithmetic {
                    Arithmetic::Hopper => self.hopper().multiply(n, k, &rows, &columns, d),
                    Arithmetic::Sequential => {
                        multiply_f32(n, k, &rows, &columns, d);
                        if self.d == Accumulator::F16 {
                            let round = |v| F16.decode(F16.encode(v, Rounding::NearestEven, false, false));
                            d.iter_mut().for_each(|v| *v = round(*v));
                        }
                    }
                }
                Ok(())
            }
            Tile::S32(d) if self.d == Accumulator::S32 && d.len() == ROWS * n => {
                if !scale_d {
                    d.fill(0);
                }
                self.integers(&rows, &columns, d);
                Ok(())
            }
            _ => Fault::err(Kind::InvalidOperand, format!("accumulator tile that is not {ROWS} x {n} of {:?}", self.d)),
        }
    }

    fn hopper(&self) -> Truncated {
        let bytes = self.a.bits() == 8;
        let min_exponent = |element| match element {
            Element::E4m3 => -6,
            Element::F16 | Element::E5m2 => -14,
            _ => -126,
        };
        Truncated {
            fraction: if bytes { 13 } else { 25 },
            result: match (self.d, bytes) {
                (Accumulator::F16, _) => Rounded::F16,
                (_, true) => Rounded::F32(14),
                _ => Rounded::F32(24),
            },
            min_exponent_a: min_exponent(self.a),
            min_exponent_b: min_exponent(self.b),
        }
    }

    fn integers(&self, rows: &[f32], columns: &[f32], d: &mut [i32]) {
        let exact = |values: &[f32]| values.iter().map(|v| *v as i32).collect::<Vec<_>>();
        // The product alone cannot overflow; only its addition to D wraps or saturates.
        let mut product = vec![0; d.len()];
        multiply_s32(self.n as usize, self.k() as usize, &exact(rows), &exact(columns), &mut product);
        for (d, product) in d.iter_mut().zip(product) {
            *d = if self.satfinite { d.saturating_add(product) } else { d.wrapping_add(product) };
        }
    }
}

#[cfg(test)]
#[path = "h200_tests.rs"]
mod h200_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
