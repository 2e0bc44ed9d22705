//! `tcgen05.mma` of every kind and layout.

use super::case::{A_AT, B_AT, Case, F16_CASE, SFA, SFB};
use super::machine::Machine;
use crate::error::{Kind, Result};
use crate::matrix::{Major, Swizzle};
use crate::tcgen05::{Kind as MmaKind, Operand, Operands, Options};
use crate::tma::CtaGroup;
use crate::tmem::Width;

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
