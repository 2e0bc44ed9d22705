//! `tcgen05.cp` and `tcgen05.shift`.

use super::machine::{Machine, put};
use crate::error::Kind;
use crate::matrix::{Element, Layout, Major, MatrixDescriptor, Packing, Swizzle};
use crate::tcgen05::{Copy, CopyShape, Decompress, Options, shift_down};
use crate::tmem::Width;

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
                Swizzle::None => MatrixDescriptor { start: 1024, leading: 8192, stride: 128, swizzle, base_offset: 0 },
                _ => MatrixDescriptor { start: 1024, leading: 16, stride: 8 * swizzle.span(), swizzle, base_offset: 0 },
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
    let none = MatrixDescriptor { start: 0, leading: 0, stride: 128, swizzle: Swizzle::None, base_offset: 0 };
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
    let none = MatrixDescriptor { start: 0, leading: 0, stride: 128, swizzle: Swizzle::None, base_offset: 0 };
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
