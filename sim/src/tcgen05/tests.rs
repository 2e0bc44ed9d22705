//! Products of every kind against f64 loops, with operands placed by the formulas of the layouts.

use super::super::{Copy, CopyShape, Decompress, Kind as MmaKind, shift_down};
use super::*;
use crate::float::{E2M1, E2M3, E3M2, E4M3, E5M2, encode_ue8m0};
use crate::tma::CtaGroup;
use crate::tmem::TensorMemory;

const SHARED: usize = 224 * 1024;
const A_AT: u32 = 1024;
const B_AT: u32 = 96 * 1024;
/// Columns of D, A and the scale factors.
const D_AT: u32 = 0;
const A_TMEM: u32 = 256;
const SFA: u32 = 300;
const SFB: u32 = 316;

struct Machine {
    shared: Vec<Vec<u8>>,
    tmem: Vec<TensorMemory>,
}

impl Machine {
    fn new() -> Self {
        let mut tmem = vec![TensorMemory::default(); 2];
        tmem.iter_mut().for_each(|tmem| assert_eq!(tmem.alloc(0, 512).unwrap(), Some(0)));
        Machine { shared: vec![vec![0; SHARED]; 2], tmem }
    }

    fn cell(&self, cta: usize, lane: u32, column: u32, width: Width) -> u32 {
        self.tmem[cta].row(lane, column, 1, width).unwrap()[0]
    }
}

impl Pair for Machine {
    fn read_shared(&mut self, cta: usize, address: u32) -> Result<[u8; 16]> {
        match self.shared[cta].get(address as usize..address as usize + 16) {
            Some(bytes) => Ok(bytes.try_into().unwrap()),
            None => Fault::err(Kind::OutOfBounds, format!("{address:#x}")),
        }
    }

    fn read_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, out: &mut [u32]) -> Result<()> {
        self.tmem[cta].check_columns(0, column, out.len() as u32)?;
        out.copy_from_slice(self.tmem[cta].row(lane, column, out.len(), width)?);
        Ok(())
    }

    fn write_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, values: &[u32]) -> Result<()> {
        self.tmem[cta].check_columns(0, column, values.len() as u32)?;
        self.tmem[cta].write_row(lane, column, values, width)
    }
}

fn code(element: Element, value: f64) -> u32 {
    let encode = |format: crate::float::Format| format.encode(value as f32, Rounding::NearestEven, true, false);
    match element {
        Element::F16 => encode(F16),
        Element::Bf16 => encode(crate::float::BF16),
        Element::Tf32 => (value as f32).to_bits(),
        Element::E4m3 => encode(E4M3),
        Element::E5m2 => encode(E5M2),
        Element::E2m3 => encode(E2M3),
        Element::E3m2 => encode(E3M2),
        Element::E2m1 => encode(E2M1),
        Element::S8 | Element::U8 => value as i32 as u32 & 0xFF,
    }
}

/// Puts element (mn, k) into a tile: rows of one swizzle span, or core matrices of 8 rows by 16 bytes.
fn put(memory: &mut [u8], layout: &Layout, mn: u32, k: u32, value: f64) {
    let (d, bits) = (&layout.descriptor, layout.element.bits());
    let per_chunk = layout.element.per_chunk(layout.packing) as u32;
    let (row, chunk, i) =
        if layout.major == Major::K { (mn, k / per_chunk, k % per_chunk) } else { (k, mn / per_chunk, mn % per_chunk) };
    let offset = match (d.swizzle, layout.major) {
        (Swizzle::None, Major::K) => row % 8 * 16 + row / 8 * d.stride + chunk * d.leading,
        (Swizzle::None, Major::Mn) => row % 8 * 16 + row / 8 * d.leading + chunk * d.stride,
        (swizzle, _) => row * swizzle.span() + chunk * 16 % swizzle.span() + chunk * 16 / swizzle.span() * d.leading,
    };
    let at = d.swizzle.apply(d.start + offset) as usize;
    let word = u128::from_le_bytes(memory[at..at + 16].try_into().unwrap())
        | (code(layout.element, value) as u128) << (i * bits);
    memory[at..at + 16].copy_from_slice(&word.to_le_bytes());
}

fn value(seed: u32, i: u32, j: u32, element: Element) -> f64 {
    let hash = (seed ^ i.wrapping_mul(0x9E37_79B9) ^ j.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35) >> 16;
    (hash % 5) as f64 - if element == Element::U8 { 0.0 } else { 2.0 }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: MmaKind,
    group: CtaGroup,
    ws: bool,
    m: u32,
    n: u32,
    types: (u32, u32),
    d_type: u32,
    transposed: (bool, bool),
    swizzle: Swizzle,
    a_in_tmem: bool,
    base_lane: u32,
    per_row: Option<u32>,
    ue4m3: bool,
    ids: (u32, u32),
}

const F16_CASE: Case = Case {
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
    fn instruction(&self) -> Instruction {
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
    fn d_place(&self, m: u32, n: u32) -> (usize, u32, u32) {
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

    fn layout(&self, instruction: &Instruction, start: u32, major: Major, element: Element) -> Layout {
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
        let descriptor = MatrixDescriptor { start, leading, stride, swizzle };
        Layout { descriptor, major, element, packing: instruction.packing(element) }
    }

    fn scale(&self, seed: u32, row: u32, s: u32) -> (u32, f64) {
        let value = 2f64.powi(value(seed, row, s, Element::U8) as i32 - 2);
        let code = if self.ue4m3 {
            code(Element::E4m3, value)
        } else {
            encode_ue8m0(value as f32, Rounding::Zero, true) as u32
        };
        (code, value)
    }

    /// Scale factors in Tensor Memory, by the formulas.
    fn put_scales(&self, machine: &mut Machine, instruction: &Instruction) {
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

    fn run(&self) {
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

const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

/// Every layout of D: (M, group, .ws).
const LAYOUTS: [(u32, CtaGroup, bool); 7] = [
    (256, CtaGroup::Two, false),
    (128, CtaGroup::Two, false),
    (128, CtaGroup::One, false),
    (128, CtaGroup::One, true),
    (64, CtaGroup::One, true),
    (64, CtaGroup::One, false),
    (32, CtaGroup::One, true),
];

#[test]
fn sixteen_bits_in_every_layout() {
    for (m, group, ws) in LAYOUTS {
        for a_in_tmem in [false, true] {
            let base_lane = if m == 64 && !ws { 16 } else { 0 };
            Case { m, group, ws, a_in_tmem, base_lane, ..F16_CASE }.run();
            Case { m, group, ws, a_in_tmem, types: (0, 0), d_type: 0, ..F16_CASE }.run();
        }
    }
    for swizzle in SWIZZLES {
        for transposed in [(true, false), (false, true), (true, true)] {
            Case { swizzle, transposed, n: 128, ..F16_CASE }.run();
            Case { swizzle, transposed, m: 256, n: 128, group: CtaGroup::Two, ..F16_CASE }.run();
        }
        Case { swizzle, m: 64, n: 24, ..F16_CASE }.run();
    }
    Case { n: 256, ..F16_CASE }.run();
}

#[test]
fn other_unscaled_kinds() {
    for (m, group) in [(128, CtaGroup::One), (256, CtaGroup::Two), (128, CtaGroup::Two)] {
        for a_in_tmem in [false, true] {
            let case = Case { m, group, a_in_tmem, ..F16_CASE };
            Case { kind: MmaKind::Tf32, types: (2, 2), ..case }.run();
            Case { kind: MmaKind::I8, types: (1, 0), d_type: 2, ..case }.run();
            for types in [(0, 1), (1, 0), (3, 4), (4, 5), (5, 3)] {
                Case { kind: MmaKind::F8f6f4, types, ..case }.run();
            }
            Case { kind: MmaKind::F8f6f4, types: (0, 0), d_type: 0, ..case }.run();
        }
        let case = Case { m, group, transposed: (true, true), ..F16_CASE };
        Case { kind: MmaKind::Tf32, types: (2, 2), ..case }.run();
        Case { kind: MmaKind::F8f6f4, types: (1, 0), ..case }.run();
        Case { kind: MmaKind::I8, types: (1, 1), d_type: 2, ..case }.run();
    }
}

#[test]
fn block_scaled_kinds() {
    for (m, group) in [(128, CtaGroup::One), (256, CtaGroup::Two), (128, CtaGroup::Two)] {
        for (n, a_in_tmem) in [(32, true), (80, false), (256, false)] {
            let case = Case { m, n, group, a_in_tmem, ..F16_CASE };
            let mx8 = Case { kind: MmaKind::Mxf8f6f4, ..case };
            Case { types: (0, 1), ids: (3, 1), ..mx8 }.run();
            Case { types: (5, 3), ids: (0, 2), per_row: Some(1), ..mx8 }.run();
            let four = Case { types: (1, 1), ..case };
            Case { kind: MmaKind::Mxf4, ids: (2, 0), ..four }.run();
            Case { kind: MmaKind::Mxf4nvf4, per_row: Some(2), ids: (0, 2), ..four }.run();
            Case { kind: MmaKind::Mxf4nvf4, per_row: Some(4), ..four }.run();
            Case { kind: MmaKind::Mxf4nvf4, per_row: Some(4), ue4m3: true, ..four }.run();
        }
    }
}

fn simple(machine: &mut Machine, case: Case, change: impl Fn(&mut Operands), options: &Options) -> Result<()> {
    let instruction = case.instruction();
    let a = case.layout(&instruction, A_AT, Major::K, instruction.a).descriptor;
    let b = case.layout(&instruction, B_AT, Major::K, instruction.b).descriptor;
    let scales = case.kind.is_block_scaled().then_some((SFA, SFB));
    let mut operands =
        Operands { d: 0, a: Operand::Shared(a), b, scales, enable_d: false, scale_d: None, disabled_lanes: &[] };
    change(&mut operands);
    instruction.execute(&operands, options, machine)
}

#[test]
fn the_old_d_is_scaled_and_lanes_stay_as_they_are() {
    let mut machine = Machine::new();
    for lane in 0..128 {
        machine.tmem[0].write_row(lane, 0, &[12f32.to_bits(); 64], Width::Full).unwrap();
    }
    const LANES: [u32; 4] = [1, 0, 0, 1 << 31];
    let change = |o: &mut Operands| (o.enable_d, o.scale_d, o.disabled_lanes) = (true, Some(2), &LANES);
    simple(&mut machine, F16_CASE, change, &Options::default()).unwrap();
    for lane in 0..128 {
        let want = if lane == 0 || lane == 127 { 12.0 } else { 3.0 };
        assert_eq!(f32::from_bits(machine.cell(0, lane, 63, Width::Full)), want, "{lane}");
    }
}

#[test]
fn misuse_is_refused() {
    let kind = |case: Case, change: &dyn Fn(&mut Operands)| {
        simple(&mut Machine::new(), case, change, &Options::default()).unwrap_err().kind
    };
    assert_eq!(kind(F16_CASE, &|o| o.enable_d = true), Kind::Uninitialised);
    assert_eq!(kind(F16_CASE, &|o| o.scale_d = Some(16)), Kind::InvalidOperand);
    assert_eq!(kind(F16_CASE, &|o| o.disabled_lanes = &[0; 8]), Kind::InvalidOperand);
    assert_eq!(kind(F16_CASE, &|o| o.scales = Some((0, 0))), Kind::InvalidOperand);
    assert_eq!(kind(F16_CASE, &|o| o.d = 16 << 16), Kind::Tmem);
    assert_eq!(kind(F16_CASE, &|o| o.d = 480), Kind::Tmem);
    assert_eq!(kind(F16_CASE, &|o| o.a = Operand::Tmem(256)), Kind::Uninitialised);
    assert_eq!(kind(F16_CASE, &|o| o.b.swizzle = Swizzle::B128Atom32), Kind::Descriptor);
    assert_eq!(kind(F16_CASE, &|o| o.b.start += 112), Kind::Descriptor);
    assert_eq!(kind(F16_CASE, &|o| o.b.start = 0x3C000), Kind::OutOfBounds);
    assert_eq!(kind(Case { m: 64, ..F16_CASE }, &|o| o.a = Operand::Tmem(256)), Kind::Unsupported);
    let pair = Case { m: 256, group: CtaGroup::Two, ..F16_CASE };
    assert_eq!(kind(pair, &|o| o.disabled_lanes = &[1; 8]), Kind::Unsupported);
    let scaled = Case { kind: MmaKind::Mxf8f6f4, types: (0, 0), ..F16_CASE };
    assert_eq!(kind(scaled, &|_| {}), Kind::Uninitialised);
    assert_eq!(kind(scaled, &|o| o.scales = None), Kind::InvalidOperand);
    assert_eq!(kind(scaled, &|o| o.scales = Some((32 << 16, 0))), Kind::Tmem);
    let mut machine = Machine::new();
    scaled.put_scales(&mut machine, &scaled.instruction());
    machine.tmem[0].write_row(40, SFA, &[0], Width::Full).unwrap();
    let fault = simple(&mut machine, scaled, |_| {}, &Options::default()).unwrap_err();
    assert!(fault.kind == Kind::Tmem && fault.message.contains("differ between lanes 8 and 40"), "{fault}");
}

#[test]
fn copies_reach_their_lanes() {
    let shapes = [
        CopyShape::L128B256,
        CopyShape::L4B256,
        CopyShape::L128B128,
        CopyShape::L64B128Pairs02,
        CopyShape::L64B128Pairs01,
        CopyShape::L32B128,
    ];
    for shape in shapes {
        for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B128] {
            let mut machine = Machine::new();
            let (rows, chunks) = shape.source();
            let descriptor = match swizzle {
                Swizzle::None => MatrixDescriptor { start: 1024, leading: 8192, stride: 128, swizzle },
                _ => MatrixDescriptor { start: 1024, leading: 16, stride: 8 * swizzle.span(), swizzle },
            };
            let layout = Layout { descriptor, major: Major::K, element: Element::U8, packing: Packing::Dense };
            let byte = |cta: u32, row: u32, at: u32| (cta * 77 + row * 3 + at) as u8;
            for cta in 0..2 {
                for row in 0..rows {
                    for at in 0..16 * chunks {
                        put(&mut machine.shared[cta as usize], &layout, row, at, byte(cta, row, at) as f64);
                    }
                }
            }
            Copy { shape, decompress: None }.execute(8, descriptor, 2, &Options::ASSUME, &mut machine).unwrap();
            let mut reached = 0;
            for cta in 0..2u32 {
                for lane in 0..128u32 {
                    let row = match shape {
                        CopyShape::L128B256 | CopyShape::L128B128 => Some(lane),
                        CopyShape::L4B256 => (lane % 32 == 0).then_some(lane / 32),
                        CopyShape::L64B128Pairs02 => Some(lane % 64),
                        CopyShape::L64B128Pairs01 => Some(lane % 32 + 32 * (lane / 64)),
                        CopyShape::L32B128 => Some(lane % 32),
                    };
                    for column in 0..4 * chunks {
                        let cell =
                            machine.tmem[cta as usize].row(lane, 8 + column, 1, Width::Full).ok().map(|row| row[0]);
                        let want = row.map(|row| {
                            u32::from_le_bytes(std::array::from_fn(|i| byte(cta, row, 4 * column + i as u32)))
                        });
                        assert_eq!(cell, want, "{shape:?} {swizzle:?} lane {lane} column {column}");
                        reached += want.is_some() as u32;
                    }
                }
            }
            assert!(reached > 0);
        }
    }
    let mut machine = Machine::new();
    let none = MatrixDescriptor { start: 0, leading: 0, stride: 128, swizzle: Swizzle::None };
    let four = Copy { shape: CopyShape::L4B256, decompress: None };
    assert_eq!(four.execute(0, none, 1, &Options::default(), &mut machine).unwrap_err().kind, Kind::Unsupported);
    let rows = Copy { shape: CopyShape::L128B128, decompress: None };
    assert_eq!(rows.execute(32 << 16, none, 1, &Options::ASSUME, &mut machine).unwrap_err().kind, Kind::Tmem);
}

#[test]
fn small_elements_expand_to_bytes() {
    let mut machine = Machine::new();
    let nibbles = 0xFEDC_BA98_7654_3210u64.to_le_bytes();
    machine.shared[0][..8].copy_from_slice(&nibbles);
    let none = MatrixDescriptor { start: 0, leading: 0, stride: 128, swizzle: Swizzle::None };
    let copy = Copy { shape: CopyShape::L32B128, decompress: Some(Decompress::B4) };
    copy.execute(0, none, 1, &Options::ASSUME, &mut machine).unwrap();
    assert_eq!(
        machine.tmem[0].row(96, 0, 4, Width::Full).unwrap(),
        [0x0C08_0400, 0x1C18_1410, 0x2C28_2420, 0x3C38_3430]
    );
    assert_eq!(copy.execute(0, none, 1, &Options::default(), &mut machine).unwrap_err().kind, Kind::Unsupported);
}

#[test]
fn rows_shift_down() {
    let mut machine = Machine::new();
    for lane in 0..128 {
        machine.tmem[0].write_row(lane, 0, &[lane; 16], Width::Full).unwrap();
    }
    shift_down(32 << 16 | 8, 1, &Options::ASSUME, &mut machine).unwrap();
    for lane in 0..128 {
        let moved = (33..64).contains(&lane);
        assert_eq!(machine.cell(0, lane, 8, Width::Full), lane - moved as u32);
        assert_eq!(machine.cell(0, lane, 7, Width::Full), lane);
    }
    assert_eq!(shift_down(8, 1, &Options::default(), &mut machine).unwrap_err().kind, Kind::Unsupported);
    assert_eq!(shift_down(16 << 16, 1, &Options::ASSUME, &mut machine).unwrap_err().kind, Kind::Tmem);
}
