//! One product: its operands in the memories, its result against an f64 loop.

use super::machine::{Machine, code, put};
use crate::float::{Rounding, encode_ue8m0};
use crate::matrix::{Element, Layout, Major, MatrixDescriptor, Swizzle};
use crate::tcgen05::{Accumulator, Instruction, Kind as MmaKind, Operand, Operands, Options};
use crate::tma::CtaGroup;
use crate::tmem::Width;

pub(super) const A_AT: u32 = 1024;
pub(super) const B_AT: u32 = 96 * 1024;
/// Columns of D, A and the scale factors.
pub(super) const D_AT: u32 = 0;
pub(super) const A_TMEM: u32 = 256;
pub(super) const SFA: u32 = 300;
pub(super) const SFB: u32 = 316;

fn value(seed: u32, i: u32, j: u32, element: Element) -> f64 {
    let hash = (seed ^ i.wrapping_mul(0x9E37_79B9) ^ j.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35) >> 16;
    (hash % 5) as f64 - if element == Element::U8 { 0.0 } else { 2.0 }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) kind: MmaKind,
    pub(super) group: CtaGroup,
    pub(super) ws: bool,
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) types: (u32, u32),
    pub(super) d_type: u32,
    pub(super) transposed: (bool, bool),
    pub(super) swizzle: Swizzle,
    pub(super) a_in_tmem: bool,
    pub(super) base_lane: u32,
    pub(super) per_row: Option<u32>,
    pub(super) ue4m3: bool,
    pub(super) ids: (u32, u32),
}

pub(super) const F16_CASE: Case = Case {
    kind: MmaKind::F16,
    group: CtaGroup::One,
    ws: false,
    m: 128,
    n: 64,
    types: (1, 1),
    d_type: 1,
    transposed: (false, false),
    swizzle: Swizzle::B128,
    a_in_tmem: false,
    base_lane: 0,
    per_row: None,
    ue4m3: false,
    ids: (0, 0),
};

impl Case {
    pub(super) fn instruction(&self) -> Instruction {
        let mut bits = self.types.0 << 7 | self.types.1 << 10 | (self.n / 8) << 17 | (self.m / 16) << 24;
        bits |= (self.transposed.0 as u32) << 15 | (self.transposed.1 as u32) << 16;
        bits |= if self.kind.is_block_scaled() {
            ((!self.ue4m3) as u32) << 23 | self.ids.0 << 29 | self.ids.1 << 4
        } else {
            self.d_type << 4
        };
        Instruction::decode(bits, self.kind, self.group, self.ws, self.per_row, &Options::ASSUME).unwrap()
    }

    /// CTA, lane and column of D by the figures; m counts the rows of the pair.
    pub(super) fn d_place(&self, m: u32, n: u32) -> (usize, u32, u32) {
        let half = self.n / 2;
        match (self.m, self.group, self.ws) {
            (256, ..) => ((m / 128) as usize, m % 128, n),
            (128, CtaGroup::Two, _) => ((m / 64) as usize, m % 64 + 64 * (n / half), n % half),
            (128, ..) => (0, m, n),
            (64, _, true) => (0, m + 64 * (n / half), n % half),
            (64, ..) => (0, m % 16 + 32 * (m / 16) + self.base_lane, n),
            _ => (0, m + 32 * (n / (self.n / 4)), n % (self.n / 4)),
        }
    }

    pub(super) fn layout(&self, instruction: &Instruction, start: u32, major: Major, element: Element) -> Layout {
        let swizzle = match (major, element) {
            (Major::Mn, Element::Tf32) => Swizzle::B128Atom32,
            _ => self.swizzle,
        };
        let span = swizzle.span();
        let (leading, stride) = match (swizzle, major) {
            (Swizzle::None, _) => (128, 1024),
            (Swizzle::B128Atom32, _) => (32 * span, 4 * span),
            (_, Major::K) => (16, 8 * span),
            (_, Major::Mn) => (64 * span, 8 * span),
        };
        let descriptor = MatrixDescriptor { start, leading, stride, swizzle, base_offset: 0 };
        Layout { descriptor, major, element, packing: instruction.packing(element) }
    }

    pub(super) fn scale(&self, seed: u32, row: u32, s: u32) -> (u32, f64) {
        let value = 2f64.powi(value(seed, row, s, Element::U8) as i32 - 2);
        let code = if self.ue4m3 {
            code(Element::E4m3, value)
        } else {
            encode_ue8m0(value as f32, Rounding::Zero, true) as u32
        };
        (code, value)
    }

    /// Scale factors in Tensor Memory, by the formulas.
    pub(super) fn put_scales(&self, machine: &mut Machine, instruction: &Instruction) {
        let Some(scaling) = instruction.scaling else { return };
        let ctas = instruction.ctas() as u32;
        let halves = self.m == 128 && self.group == CtaGroup::Two;
        let mut or = |cta: u32, lane: u32, column: u32, bits: u32| {
            let tmem = &mut machine.tmem[cta as usize];
            let old = tmem.row(lane, column, 1, Width::Full).map_or(0, |row| row[0]);
            tmem.write_row(lane, column, &[old | bits], Width::Full).unwrap();
        };
        for cta in 0..ctas {
            for s in 0..scaling.per_row {
                for row in 0..self.m / ctas {
                    let byte = self.scale(3, cta * self.m / ctas + row, s).0 << (8 * (scaling.a_id + s));
                    (0..4).for_each(|p| or(cta, row % 32 + 32 * p, SFA + row / 32, byte));
                }
                for n in 0..self.n {
                    let byte = self.scale(4, n, s).0 << (8 * (scaling.b_id + s));
                    if halves {
                        let (h, y) = (n / (self.n / 2), n % (self.n / 2));
                        (0..2).for_each(|p| or(cta, y % 32 + 64 * h + 32 * p, SFB + y / 32, byte));
                    } else {
                        (0..4).for_each(|p| or(cta, n % 32 + 32 * p, SFB + n / 32, byte));
                    }
                }
            }
        }
    }

    pub(super) fn run(&self) {
        let instruction = self.instruction();
        let Instruction { a, b, d, m, n, .. } = instruction;
        let (k, ctas) = (instruction.k(), instruction.ctas() as u32);
        let mut machine = Machine::new();
        let layout_a = self.layout(&instruction, A_AT, instruction.major_a, a);
        let layout_b = self.layout(&instruction, B_AT, instruction.major_b, b);
        for cta in 0..ctas {
            for kk in 0..k {
                for row in 0..m / ctas {
                    put(&mut machine.shared[cta as usize], &layout_a, row, kk, value(1, cta * m / ctas + row, kk, a));
                }
                for column in 0..n / ctas {
                    put(
                        &mut machine.shared[cta as usize],
                        &layout_b,
                        column,
                        kk,
                        value(2, cta * n / ctas + column, kk, b),
                    );
                }
            }
        }
        let mut a_operand = Operand::Shared(layout_a.descriptor);
        if self.a_in_tmem {
            a_operand = Operand::Tmem(self.base_lane << 16 | A_TMEM);
            let (bits, shift) = match (self.kind, a.bits()) {
                (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 4) => (8, 2),
                (_, 6) => (8, 0),
                (_, bits) => (bits, 0),
            };
            for row in 0..m {
                let mut cells = [0u32; 8];
                for kk in 0..k {
                    cells[(kk * bits / 32) as usize] |= (code(a, value(1, row, kk, a)) << shift) << (kk * bits % 32);
                }
                // A copy beside every part of D's row.
                for column in 0..n {
                    let (cta, lane, _) = self.d_place(row, column);
                    machine.tmem[cta].write_row(lane, A_TMEM, &cells, Width::Full).unwrap();
                }
            }
            machine.shared.iter_mut().for_each(|shared| shared[..B_AT as usize].fill(0xFF));
        }
        self.put_scales(&mut machine, &instruction);
        let width = if d == Accumulator::F16 { Width::Low } else { Width::Full };
        let mut operands = Operands {
            d: self.base_lane << 16 | D_AT,
            a: a_operand,
            b: layout_b.descriptor,
            scales: self.kind.is_block_scaled().then_some((SFA, SFB)),
            enable_d: false,
            scale_d: None,
            disabled_lanes: &[],
        };
        // Rows of A and columns of B, scaled.
        let factors = [(1, m, a), (2, n, b)].map(|(seed, count, element)| {
            let scaled = |row: u32, kk: u32| {
                let scale = instruction.scaling.map_or(1.0, |s| self.scale(seed + 2, row, kk / (k / s.per_row)).1);
                value(seed, row, kk, element) * scale
            };
            (0..count).map(|row| (0..k).map(|kk| scaled(row, kk)).collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        // D is not initialised: the first product must not read it, the second adds to the first.
        for times in 1..=2 {
            instruction.execute(&operands, &Options::ASSUME, &mut machine).unwrap();
            operands.enable_d = true;
            for row in 0..m {
                for column in 0..n {
                    let [scaled_a, scaled_b] = [&factors[0][row as usize], &factors[1][column as usize]];
                    let want = scaled_a.iter().zip(scaled_b).map(|(a, b)| a * b).sum::<f64>() * times as f64;
                    let (cta, lane, at) = self.d_place(row, column);
                    let bits = machine.cell(cta, lane, D_AT + at, width);
                    let got = match d {
                        Accumulator::F32 => f32::from_bits(bits) as f64,
                        Accumulator::F16 => half::f16::from_bits(bits as u16).to_f64(),
                        Accumulator::S32 => bits as i32 as f64,
                    };
                    assert_eq!(got, want, "{self:?} row {row} column {column}");
                }
            }
        }
    }
}
