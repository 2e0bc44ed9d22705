//! Register fragments (PTX ISA 9.7.15.5.1.1): which thread of the warpgroup holds which elements.

use super::instruction::Accumulator;
use crate::float::{F16, Rounding};
use crate::matrix::{Element, Packing};

/// Rows of every wgmma.
pub(super) const ROWS: usize = 64;

/// The accumulator, row-major, 64 x n.
#[derive(Clone, Debug, PartialEq)]
pub enum Tile {
    /// f32, also the values of an f16 accumulator.
    F32(Vec<f32>),
    /// s32.
    S32(Vec<i32>),
}

impl Tile {
    /// A tile of zeros.
    pub fn new(accumulator: Accumulator, n: usize) -> Self {
        match accumulator {
            Accumulator::S32 => Tile::S32(vec![0; ROWS * n]),
            _ => Tile::F32(vec![0.0; ROWS * n]),
        }
    }

    /// Calls `visit(lane, element)` on element `i` of each lane of `warp`.
    #[inline(always)]
    fn each<T>(tile: &mut [T], n: usize, warp: usize, i: usize, mut visit: impl FnMut(usize, &mut T)) {
        let first = (16 * warp + 8 * (i / 2 % 2)) * n + 8 * (i / 4) + i % 2;
        for row in 0..8 {
            let elements = tile[first + row * n..][..7].iter_mut().step_by(2);
            elements.enumerate().for_each(|(quarter, element)| visit(4 * row + quarter, element));
        }
    }

    /// Takes register `register` of the lanes of `warp` (0 to 3 in its warpgroup).
    pub fn set_register(
        &mut self,
        accumulator: Accumulator,
        n: usize,
        warp: usize,
        register: usize,
        lanes: &[u32; 32],
    ) {
        match self {
            Tile::F32(tile) if accumulator == Accumulator::F16 => {
                for half in 0..2 {
                    Self::each(tile, n, warp, 2 * register + half, |lane, d| {
                        *d = F16.decode(lanes[lane] >> (16 * half) & 0xFFFF);
                    });
                }
            }
            Tile::F32(tile) => Self::each(tile, n, warp, register, |lane, d| *d = f32::from_bits(lanes[lane])),
            Tile::S32(tile) => Self::each(tile, n, warp, register, |lane, d| *d = lanes[lane] as i32),
        }
    }

    /// Register `register` of the lanes of `warp`.
    pub fn register(&self, accumulator: Accumulator, n: usize, warp: usize, register: usize) -> [u32; 32] {
        let lane =
            |i: usize, lane: usize| (16 * warp + 8 * (i / 2 % 2) + lane / 4) * n + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        match self {
            Tile::F32(tile) if accumulator == Accumulator::F16 => std::array::from_fn(|t| {
                let half = |i: usize| F16.encode(tile[lane(i, t)], Rounding::NearestEven, false, false);
                half(2 * register) | half(2 * register + 1) << 16
            }),
            Tile::F32(tile) => gather(tile, n, lane(register, 0), f32::to_bits),
            Tile::S32(tile) => gather(tile, n, lane(register, 0), |d| d as u32),
        }
    }
}

/// Every second element of eight rows, four a row.
#[inline(always)]
fn gather<T: Copy>(tile: &[T], n: usize, first: usize, bits: impl Fn(T) -> u32) -> [u32; 32] {
    let mut lanes = [0; 32];
    for (row, lanes) in lanes.chunks_exact_mut(4).enumerate() {
        let elements = tile[first + row * n..][..7].iter().step_by(2);
        lanes.iter_mut().zip(elements).for_each(|(lane, d)| *lane = bits(*d));
    }
    lanes
}

/// Operand A in registers: `[warp][register][lane]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AFragment(pub [[[u32; 32]; 4]; 4]);

impl AFragment {
    /// The operand as 64 rows of k values, k the depth of the instruction.
    pub(super) fn rows(&self, element: Element, out: &mut [f32]) {
        let per_register = 32 / element.bits() as usize;
        let k = 8 * per_register;
        let mut values = [0f32; 16];
        for (warp, registers) in self.0.iter().enumerate() {
            for (register, lanes) in registers.iter().enumerate() {
                for (lane, bits) in lanes.iter().enumerate() {
                    let mut chunk = [0; 16];
                    chunk[..4].copy_from_slice(&bits.to_le_bytes());
                    element.decode(Packing::Dense, &chunk, &mut values[..per_register]);
                    // Registers alternate between the upper and the lower eight rows, then advance along K.
                    let row = 16 * warp + lane / 4 + 8 * (register % 2);
                    let column = k / 2 * (register / 2) + per_register * (lane % 4);
                    out[row * k + column..][..per_register].copy_from_slice(&values[..per_register]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulator_registers_lie_where_the_formula_says() {
        let n = 24;
        let value = |row: usize, column: usize| (row * 100 + column) as f32;
        for accumulator in [Accumulator::F32, Accumulator::F16, Accumulator::S32] {
            let mut tile = Tile::new(accumulator, n);
            for i in 0..ROWS * n {
                match &mut tile {
                    Tile::F32(tile) if accumulator == Accumulator::F16 => tile[i] = (i % 2000) as f32,
                    Tile::F32(tile) => tile[i] = value(i / n, i % n),
                    Tile::S32(tile) => tile[i] = value(i / n, i % n) as i32,
                }
            }
            let mut copy = Tile::new(accumulator, n);
            let registers = if accumulator == Accumulator::F16 { n / 4 } else { n / 2 };
            for warp in 0..4 {
                for register in 0..registers {
                    let lanes = tile.register(accumulator, n, warp, register);
                    copy.set_register(accumulator, n, warp, register, &lanes);
                    for (t, bits) in lanes.into_iter().enumerate() {
                        let at = |i: usize| {
                            let row = 16 * warp + t / 4 + 8 * ((i / 2) % 2);
                            (row, 8 * (i / 4) + 2 * (t % 4) + i % 2)
                        };
                        match accumulator {
                            Accumulator::F32 => assert_eq!(f32::from_bits(bits), value(at(register).0, at(register).1)),
                            Accumulator::S32 => assert_eq!(bits as f32, value(at(register).0, at(register).1)),
                            Accumulator::F16 => {
                                for half in 0..2 {
                                    let (row, column) = at(2 * register + half);
                                    let got = half::f16::from_bits((bits >> (16 * half)) as u16).to_f32();
                                    assert_eq!(got, ((row * n + column) % 2000) as f32);
                                }
                            }
                        }
                    }
                }
            }
            assert_eq!(copy, tile);
        }
    }

    #[test]
    fn a_registers_lie_where_the_formulas_say() {
        for element in [Element::Bf16, Element::Tf32, Element::U8] {
            let k = 256 / element.bits() as usize;
            let value = |row: usize, kk: usize| ((row * 7 + kk * 3) % 200) as f32;
            let mut fragment = AFragment([[[0; 32]; 4]; 4]);
            for (warp, registers) in fragment.0.iter_mut().enumerate() {
                for (t, i) in (0..32).flat_map(|t| (0..k / 2).map(move |i| (t, i))) {
                    // Element i: its row, its k, its register and the bits below it.
                    let (row, kk, register, shift) = match element {
                        Element::Bf16 => {
                            (t / 4 + 8 * ((i / 2) % 2), 8 * (i / 4) + 2 * (t % 4) + i % 2, i / 2, 16 * (i % 2))
                        }
                        Element::Tf32 => (t / 4 + 8 * (i % 2), t % 4 + 4 * (i / 2), i, 0),
                        _ => (t / 4 + 8 * ((i / 4) % 2), 16 * (i / 8) + 4 * (t % 4) + i % 4, i / 4, 8 * (i % 4)),
                    };
                    let v = value(16 * warp + row, kk);
                    let bits = match element {
                        Element::Bf16 => half::bf16::from_f32(v).to_bits() as u32,
                        Element::Tf32 => v.to_bits(),
                        _ => v as u32,
                    };
                    registers[register][t] |= bits << shift;
                }
            }
            let mut rows = vec![-1.0; ROWS * k];
            fragment.rows(element, &mut rows);
            for (at, got) in rows.into_iter().enumerate() {
                assert_eq!(got, value(at / k, at % k), "{element:?} {at}");
            }
        }
    }
}
