//! Boxes against the element-by-element definition of PTX ISA 5.5.3.

use std::collections::BTreeMap;

use super::*;
use crate::tensor_map::{DataType, L2Promotion};

fn map(
    data_type: DataType,
    dims: &[u64],
    strides: &[u64],
    box_dims: &[u32],
    steps: &[u32],
    swizzle: Swizzle,
) -> TensorMap {
    let rank = dims.len();
    let or = |d: usize, values: &[u32]| values.get(d).copied().unwrap_or(1);
    let map = TensorMap {
        data_type,
        rank,
        address: 1 << 20,
        dims: std::array::from_fn(|d| dims.get(d).copied().unwrap_or(1)),
        strides: std::array::from_fn(|d| if d > 0 && d < rank { strides[d - 1] } else { 0 }),
        box_dims: std::array::from_fn(|d| or(d, box_dims)),
        element_strides: std::array::from_fn(|d| or(d, steps)),
        interleave: Interleave::None,
        swizzle,
        l2: L2Promotion::None,
        fill: Fill::Zero,
    };
    map.check().unwrap();
    map
}

const ASSUME: Options = Options { ragged_outside: Outside::Fault, flip: Unconfirmed::Assume };

/// Shared byte -> global byte of a load, by the definition.
fn by_definition(map: &TensorMap, coordinates: &[i32], shared: u32) -> BTreeMap<u32, Option<u64>> {
    let (_, size, _) = map.data_type.unit();
    let count: Vec<u32> =
        (0..5).map(|d| map.box_dims[d].div_ceil(if d == 0 { 1 } else { map.element_strides[d] })).collect();
    let pitch = if map.swizzle == Swizzle::None { count[0] * size } else { map.swizzle.span() };
    let mut all = BTreeMap::new();
    for linear in 0..count.iter().product::<u32>() {
        let (mut rest, mut index) = (linear, [0u32; 5]);
        for d in 0..5 {
            index[d] = rest % count[d];
            rest /= count[d];
        }
        let global: Vec<i64> = (0..map.rank)
            .map(|d| coordinates[d] as i64 + index[d] as i64 * if d == 0 { 1 } else { map.element_strides[d] as i64 })
            .collect();
        let inside = (0..map.rank).all(|d| global[d] >= 0 && global[d] < map.dims[d] as i64);
        let address = (0..map.rank).fold(map.address as i64, |sum, d| {
            sum + global[d] * if d == 0 { size as i64 } else { map.strides[d] as i64 }
        });
        let row = index[1] + count[1] * (index[2] + count[2] * (index[3] + count[3] * index[4]));
        for byte in 0..size {
            let at = map.swizzle.apply(shared + row * pitch + index[0] * size + byte);
            let previous = all.insert(at, inside.then_some(address as u64 + byte as u64));
            assert!(previous.is_none());
        }
    }
    all
}

fn by_pieces(tile: &Tile) -> BTreeMap<u32, Option<u64>> {
    let mut all = BTreeMap::new();
    tile.for_each(|piece| {
        assert!(piece.bytes > 0 && piece.shared / 16 == (piece.shared + piece.bytes - 1) / 16);
        for byte in 0..piece.bytes {
            let previous = all.insert(piece.shared + byte, piece.global.map(|g| g + byte as u64));
            assert!(previous.is_none());
        }
        Ok(())
    })
    .unwrap();
    all
}

#[test]
fn boxes_follow_the_definition() {
    let swizzles = [
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
    ];
    for swizzle in swizzles {
        for (data_type, size) in [(DataType::U8, 1), (DataType::Bf16, 2), (DataType::F32, 4), (DataType::F64, 8)] {
            let inner = if swizzle == Swizzle::None { 48 } else { swizzle.span() } / size;
            let dims = [inner as u64 + 5, 9, 4, 3];
            let map = map(data_type, &dims, &[1024, 16384, 80000], &[inner, 4, 3, 2], &[7, 2, 1, 1], swizzle);
            for coordinates in
                [[0, 0, 0, 0], [7, 6, 2, 1], [-3, -1, -1, 2], [100, 0, 0, 0], [2, 7, 3, -1], [0, 0, 0, 3]]
            {
                let tile = Tile::new(&map, Direction::Load, Mode::Tile, &coordinates, 4096 + 128, &ASSUME).unwrap();
                let want = by_definition(&map, &coordinates, 4096 + 128);
                assert_eq!(by_pieces(&tile), want, "{swizzle:?} {data_type:?} {coordinates:?}");
                assert_eq!(tile.bytes() as usize, want.len());
                assert_eq!(tile.is_outside(), want.values().all(Option::is_none));
                if coordinates.iter().all(|&c| c >= 0) && swizzle != Swizzle::B128Atom32Flip8 {
                    let tile =
                        Tile::new(&map, Direction::Store, Mode::Tile, &coordinates, 4096 + 128, &ASSUME).unwrap();
                    let inside: BTreeMap<_, _> = want.into_iter().filter(|(_, global)| global.is_some()).collect();
                    assert_eq!(by_pieces(&tile), inside);
                }
            }
        }
    }
}

#[test]
fn narrow_swizzled_rows_keep_the_pitch_of_the_span() {
    let map = map(DataType::Bf16, &[64, 8], &[128], &[16, 4], &[1, 1], Swizzle::B128);
    let tile = Tile::new(&map, Direction::Load, Mode::Tile, &[0, 0], 1024, &ASSUME).unwrap();
    assert_eq!((tile.bytes(), tile.shared_bytes()), (128, 512));
    assert_eq!(by_pieces(&tile), by_definition(&map, &[0, 0], 1024));
}

#[test]
fn a_ragged_map_wraps_its_addresses() {
    // Ten rows of 64 elements; rows of a sequence end at coordinate 2^30.
    let (row, end) = (128u64, 1i32 << 30);
    let mut ragged =
        map(DataType::Bf16, &[64, 1 << 30, 1, i32::MAX as u64], &[row, row * 16, row], &[64, 4], &[], Swizzle::B128);
    ragged.address = (1u64 << 20).wrapping_sub(row << 30);
    let at = |row: i32, last: i32, options: &Options| {
        Tile::new(&ragged, Direction::Load, Mode::Tile, &[0, end - 3 + row, 0, last], 1024, options).map(|tile| {
            by_pieces(&tile).values().flatten().map(|g| g - (1 << 20)).collect::<std::collections::BTreeSet<_>>()
        })
    };
    // A sequence of three rows that ends at row 7: rows 4 to 6.
    assert_eq!(at(0, 7, &ASSUME).unwrap(), (4 * row..7 * row).collect());
    assert_eq!(at(3, 7, &ASSUME).unwrap_err().kind, Kind::OutOfBounds);
    assert!(at(3, 7, &Options { ragged_outside: Outside::Fill, ..ASSUME }).unwrap().is_empty());
}

#[test]
fn four_rows_are_gathered() {
    let map = map(DataType::F16, &[64, 100], &[256], &[32, 1], &[1, 1], Swizzle::B64);
    let tile = Tile::new(&map, Direction::Load, Mode::Rows4, &[8, 99, 0, 100, 5], 512, &ASSUME).unwrap();
    assert_eq!(tile.bytes(), 256);
    let all = by_pieces(&tile);
    for (i, row) in [Some(99), Some(0), None, Some(5)].into_iter().enumerate() {
        for byte in 0..64u32 {
            let at = map.swizzle.apply(512 + 64 * i as u32 + byte);
            assert_eq!(all[&at], row.map(|r: u64| (1 << 20) + r * 256 + 16 + byte as u64));
        }
    }
    assert!(Tile::new(&map, Direction::Load, Mode::Rows4, &[8, 99], 512, &ASSUME).is_err());
}

#[test]
fn padded_units_leave_their_padding() {
    let map = map(DataType::U6x16Align16, &[256, 4], &[192], &[128, 2], &[1, 1], Swizzle::B128);
    let tile = Tile::new(&map, Direction::Load, Mode::Tile, &[128, 3], 1024, &ASSUME).unwrap();
    assert_eq!((tile.inner, tile.bytes()), (128, 256));
    let all = by_pieces(&tile);
    assert_eq!(all.len(), 2 * 8 * 12);
    for unit in 0..8u32 {
        for byte in 0..12 {
            let at = map.swizzle.apply(1024 + unit * 16) + byte;
            assert_eq!(all[&at], Some((1 << 20) + 3 * 192 + 96 + (unit * 12 + byte) as u64));
            assert_eq!(all[&(map.swizzle.apply(1024 + 128 + unit * 16) + byte)], None);
        }
    }
    assert!(Tile::new(&map, Direction::Load, Mode::Tile, &[64, 0], 1024, &ASSUME).is_err());
}

#[test]
fn fills_are_zero_or_nan() {
    let mut map = map(DataType::Bf16, &[64, 8], &[128], &[64, 4], &[1, 1], Swizzle::B128);
    let mut out = [1; 6];
    Tile::new(&map, Direction::Load, Mode::Tile, &[0, 0], 1024, &ASSUME).unwrap().fill(&mut out);
    assert_eq!(out, [0; 6]);
    map.fill = Fill::Nan;
    Tile::new(&map, Direction::Load, Mode::Tile, &[0, 0], 1024, &ASSUME).unwrap().fill(&mut out);
    assert_eq!(out, [0xFF, 0x7F, 0xFF, 0x7F, 0xFF, 0x7F]);
}

#[test]
fn misuse_is_refused() {
    let map = map(DataType::Bf16, &[64, 8], &[128], &[64, 4], &[1, 1], Swizzle::B128);
    let kind = |direction, coordinates: &[i32], shared| {
        Tile::new(&map, direction, Mode::Tile, coordinates, shared, &ASSUME).unwrap_err().kind
    };
    assert_eq!(kind(Direction::Load, &[0, 0], 64), Kind::Misaligned);
    assert_eq!(kind(Direction::Load, &[0, 0, 0], 1024), Kind::InvalidOperand);
    assert_eq!(kind(Direction::Store, &[0, -1], 1024), Kind::OutOfBounds);
    let interleaved = TensorMap { interleave: Interleave::B16, ..map };
    let refused = Tile::new(&interleaved, Direction::Load, Mode::Tile, &[0, 0], 1024, &ASSUME);
    assert_eq!(refused.unwrap_err().kind, Kind::Unsupported);
}
