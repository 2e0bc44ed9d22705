//! Products from swizzled shared memory against plain f64 loops.

use super::*;
use crate::float::{E4M3, E5M2};
use crate::matrix::Swizzle;

struct Bytes(Vec<u8>);

impl SharedRead for Bytes {
    fn read16(&mut self, address: u32) -> Result<[u8; 16]> {
        let at = address as usize;
        match self.0.get(at..at + 16) {
            Some(bytes) => Ok(bytes.try_into().unwrap()),
            None => Fault::err(Kind::OutOfBounds, format!("{address:#x}")),
        }
    }
}

fn store(memory: &mut [u8], at: u32, element: Element, value: f64) {
    let at = at as usize;
    let v = value as f32;
    let rn = Rounding::NearestEven;
    match element {
        Element::F16 => memory[at..at + 2].copy_from_slice(&half::f16::from_f32(v).to_le_bytes()),
        Element::Bf16 => memory[at..at + 2].copy_from_slice(&half::bf16::from_f32(v).to_le_bytes()),
        Element::Tf32 => memory[at..at + 4].copy_from_slice(&v.to_le_bytes()),
        Element::E4m3 => memory[at] = E4M3.encode(v, rn, true, false) as u8,
        Element::E5m2 => memory[at] = E5M2.encode(v, rn, true, false) as u8,
        Element::S8 => memory[at] = v as i8 as u8,
        _ => memory[at] = v as u8,
    }
}

/// Byte offset of an element in a tile as TMA leaves it: rows of one span, spans of the same rows one after the other.
fn tiled(layout: &MatrixDescriptor, major: Major, element: Element, mn: u32, k: u32) -> u32 {
    let es = element.bits() / 8;
    let (row, byte) = if major == Major::K { (mn, k * es) } else { (k, mn * es) };
    let offset = match layout.swizzle {
        // Core matrices of 8 rows by 16 bytes.
        Swizzle::None => {
            let (outer, inner) =
                if major == Major::K { (layout.stride, layout.leading) } else { (layout.leading, layout.stride) };
            row % 8 * 16 + row / 8 * outer + byte / 16 * inner + byte % 16
        }
        swizzle => {
            let span = swizzle.span();
            row * span + byte % span + byte / span * layout.leading
        }
    };
    layout.swizzle.apply(layout.start + offset)
}

fn value(seed: u32, i: u32, j: u32, element: Element) -> f64 {
    let hash = (seed ^ i.wrapping_mul(0x9E37_79B9) ^ j.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35);
    match element {
        Element::U8 => (hash >> 24) as f64,
        Element::E4m3 | Element::E5m2 => ((hash >> 29) as f64) - 4.0,
        // Exact in every type, and their sums in f32.
        _ => ((hash >> 27) as f64) - 16.0,
    }
}

fn check(instruction: Instruction, swizzle: Swizzle, in_registers: bool) {
    let Instruction { n, a, b, major_a, major_b, .. } = instruction;
    let k = instruction.k();
    let place = |start: u32, major: Major| match (swizzle, major) {
        (Swizzle::None, _) => MatrixDescriptor { start, leading: 128, stride: 2048, swizzle, base_offset: 0 },
        (_, Major::K) => MatrixDescriptor { start, leading: 16, stride: 8 * swizzle.span(), swizzle, base_offset: 0 },
        (_, Major::Mn) => MatrixDescriptor {
            start,
            leading: 16 * swizzle.span(),
            stride: 8 * swizzle.span(),
            swizzle,
            base_offset: 0,
        },
    };
    let (at_a, at_b) = (place(1024, major_a), place(128 * 1024, major_b));
    let mut memory = vec![0u8; 256 * 1024];
    for kk in 0..k {
        (0..64).for_each(|m| store(&mut memory, tiled(&at_a, major_a, a, m, kk), a, value(1, m, kk, a)));
        (0..n).for_each(|j| store(&mut memory, tiled(&at_b, major_b, b, j, kk), b, value(2, j, kk, b)));
    }
    let mut tile = Tile::new(instruction.d, n as usize);
    match &mut tile {
        Tile::F32(d) => d.iter_mut().enumerate().for_each(|(i, d)| *d = i as f32 % 50.0),
        Tile::S32(d) => d.iter_mut().enumerate().for_each(|(i, d)| *d = i as i32 % 50),
    }
    let mut fragment = AFragment([[[0; 32]; 4]; 4]);
    let per_register = 32 / a.bits() as usize;
    for (warp, registers) in fragment.0.iter_mut().enumerate() {
        for (register, lanes) in registers.iter_mut().enumerate() {
            for (lane, bits) in lanes.iter_mut().enumerate() {
                let mut bytes = [0; 8];
                for e in 0..per_register {
                    let row = 16 * warp + lane / 4 + 8 * (register % 2);
                    let kk = 4 * per_register * (register / 2) + per_register * (lane % 4) + e;
                    store(&mut bytes, (4 / per_register * e) as u32, a, value(1, row as u32, kk as u32, a));
                }
                *bits = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            }
        }
    }
    let operand = if in_registers { OperandA::Registers(&fragment) } else { OperandA::Shared(at_a) };
    let mut memory = Bytes(memory);
    for (scale_d, step) in [(true, 0), (false, 1)] {
        instruction.execute(operand, at_b, scale_d, &mut memory, &mut tile).unwrap();
        for m in 0..64 {
            for j in 0..n {
                let sign = if instruction.negate_a != instruction.negate_b { -1.0 } else { 1.0 };
                let product: f64 = (0..k).map(|kk| value(1, m, kk, a) * value(2, j, kk, b)).sum();
                let old = if step == 0 { ((m * n + j) % 50) as f64 } else { 0.0 };
                let want = sign * product + old;
                let got = match &tile {
                    Tile::F32(d) => d[(m * n + j) as usize] as f64,
                    Tile::S32(d) => d[(m * n + j) as usize] as f64,
                };
                let want = if instruction.d == Accumulator::F16 { half::f16::from_f64(want).to_f64() } else { want };
                assert_eq!(got, want, "{instruction:?} {swizzle:?} {m} {j}");
            }
        }
    }
}

const BF16: Instruction = Instruction {
    n: 128,
    d: Accumulator::F32,
    a: Element::Bf16,
    b: Element::Bf16,
    negate_a: false,
    negate_b: false,
    major_a: Major::K,
    major_b: Major::K,
    satfinite: false,
};

const MODES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

#[test]
fn sixteen_bit_types_in_every_layout() {
    for swizzle in MODES {
        for major_a in [Major::K, Major::Mn] {
            for major_b in [Major::K, Major::Mn] {
                check(Instruction { major_a, major_b, ..BF16 }, swizzle, false);
                let f16 =
                    Instruction { a: Element::F16, b: Element::F16, n: 72, negate_a: true, major_a, major_b, ..BF16 };
                check(f16, swizzle, false);
            }
        }
        check(Instruction { major_b: Major::Mn, ..BF16 }, swizzle, true);
        check(Instruction { n: 8, a: Element::F16, b: Element::F16, d: Accumulator::F16, ..BF16 }, swizzle, true);
        check(Instruction { n: 256, negate_b: true, ..BF16 }, swizzle, true);
    }
}

#[test]
fn other_types() {
    for swizzle in MODES {
        for in_registers in [false, true] {
            check(Instruction { a: Element::Tf32, b: Element::Tf32, ..BF16 }, swizzle, in_registers);
            check(Instruction { a: Element::E4m3, b: Element::E5m2, n: 40, ..BF16 }, swizzle, in_registers);
            check(
                Instruction { a: Element::S8, b: Element::U8, n: 48, d: Accumulator::S32, ..BF16 },
                swizzle,
                in_registers,
            );
            check(
                Instruction { a: Element::E5m2, b: Element::E4m3, n: 64, d: Accumulator::F16, ..BF16 },
                swizzle,
                in_registers,
            );
        }
    }
}

#[test]
fn fractions_stay_close_to_f64() {
    let mut memory = vec![0u8; 64 * 1024];
    let at = |start| MatrixDescriptor { start, leading: 16, stride: 1024, swizzle: Swizzle::B128, base_offset: 0 };
    let x = |seed, i, j| half::bf16::from_f64((value(seed, i, j, Element::U8) / 255.0 - 0.5) * 4.0);
    for kk in 0..16 {
        for i in 0..128 {
            if i < 64 {
                store(
                    &mut memory,
                    tiled(&at(1024), Major::K, Element::Bf16, i, kk),
                    Element::Bf16,
                    x(1, i, kk).to_f64(),
                );
            }
            store(&mut memory, tiled(&at(32768), Major::K, Element::Bf16, i, kk), Element::Bf16, x(2, i, kk).to_f64());
        }
    }
    let mut tile = Tile::new(Accumulator::F32, 128);
    BF16.execute(OperandA::Shared(at(1024)), at(32768), false, &mut Bytes(memory), &mut tile).unwrap();
    let Tile::F32(tile) = tile else { unreachable!() };
    for (i, got) in tile.into_iter().enumerate() {
        let (m, j) = (i as u32 / 128, i as u32 % 128);
        let want: f64 = (0..16).map(|kk| x(1, m, kk).to_f64() * x(2, j, kk).to_f64()).sum();
        assert!((got as f64 - want).abs() < 16.0 * 16.0 * 2f64.powi(-24), "{m} {j} {got} {want}");
    }
}

#[test]
fn integers_wrap_or_saturate() {
    let instruction = Instruction { a: Element::U8, b: Element::U8, n: 8, d: Accumulator::S32, ..BF16 };
    let descriptor = MatrixDescriptor { start: 0, leading: 128, stride: 256, swizzle: Swizzle::None, base_offset: 0 };
    for satfinite in [false, true] {
        let mut tile = Tile::S32(vec![i32::MAX - 1; 64 * 8]);
        let instruction = Instruction { satfinite, ..instruction };
        instruction
            .execute(OperandA::Shared(descriptor), descriptor, true, &mut Bytes(vec![1; 4096]), &mut tile)
            .unwrap();
        let want = if satfinite { i32::MAX } else { i32::MIN + 30 };
        assert_eq!(tile, Tile::S32(vec![want; 64 * 8]));
    }
}

#[test]
fn combinations_that_do_not_exist() {
    for bad in [
        Instruction { n: 12, ..BF16 },
        Instruction { n: 264, ..BF16 },
        Instruction { n: 0, ..BF16 },
        Instruction { d: Accumulator::F16, ..BF16 },
        Instruction { b: Element::F16, ..BF16 },
        Instruction { a: Element::Tf32, b: Element::Tf32, major_b: Major::Mn, ..BF16 },
        Instruction { a: Element::E2m1, b: Element::E2m1, ..BF16 },
        Instruction { a: Element::S8, b: Element::S8, d: Accumulator::S32, n: 40, ..BF16 },
        Instruction { satfinite: true, ..BF16 },
    ] {
        assert_eq!(bad.check().unwrap_err().kind, Kind::InvalidOperand, "{bad:?}");
    }
    let mut tile = Tile::new(Accumulator::F32, 128);
    let beyond = MatrixDescriptor { start: 0x3FFF0, leading: 16, stride: 1024, swizzle: Swizzle::None, base_offset: 0 };
    let fault =
        BF16.execute(OperandA::Shared(beyond), beyond, false, &mut Bytes(vec![0; 4096]), &mut tile).unwrap_err();
    assert_eq!(fault.kind, Kind::OutOfBounds);
    let mut wrong = Tile::new(Accumulator::F32, 64);
    let zero = MatrixDescriptor { start: 0, leading: 16, stride: 128, swizzle: Swizzle::None, base_offset: 0 };
    assert!(BF16.execute(OperandA::Shared(zero), zero, false, &mut Bytes(vec![0; 1 << 16]), &mut wrong).is_err());
}
