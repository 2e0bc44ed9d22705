//! The boxes of tensor copies: tile mode, gather4 and scatter4 (PTX ISA 5.5 and 9.7.9.25.5).

use crate::error::{Fault, Kind, Result};
use crate::matrix::Swizzle;
use crate::tensor_map::{Fill, Interleave, MAX_RANK, TensorMap};
use crate::unconfirmed::Unconfirmed;

/// Alignment of the box in shared memory.
const SHARED_ALIGNMENT: u32 = 128;

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Global to shared memory.
    Load,
    /// Shared to global memory, with or without a reduction.
    Store,
    /// Global memory to L2: coordinates are checked, shared memory is not touched.
    Prefetch,
}

/// How coordinates name the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As many coordinates as dimensions, the contiguous one first.
    Tile,
    /// Four rows of a 2-D tensor: column, then the rows. Loads gather, stores scatter.
    Rows4,
}

/// What to do about a load whose box lies wholly outside a map that [`TensorMap::is_ragged`].
///
/// The ISA fills such a box. On an H200 the load of a box that begins at or beyond the end of any dimension ended the
/// kernel with an illegal address; a box with one element inside was clipped and filled. The base of such a map is no
/// memory of the program, which may be why; ordinary maps fill boxes that are wholly outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// Fill it.
    Fill,
    /// Report [`Kind::OutOfBounds`], as hardware does.
    #[default]
    Fault,
}

/// Choices where hardware and ISA differ or are silent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Loads wholly outside a ragged map.
    pub ragged_outside: Outside,
    /// Lines whose 8-byte halves the flipping swizzle exchanges; assumed to be the odd ones.
    pub flip: Unconfirmed,
}

/// Up to 16 contiguous bytes of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Global address; `None` for bytes out of bounds, which a load fills.
    pub global: Option<u64>,
    /// Shared address, swizzled.
    pub shared: u32,
    /// Length.
    pub bytes: u32,
}

/// One box, its coordinates checked.
#[derive(Clone, Debug)]
pub struct Tile<'a> {
    map: &'a TensorMap,
    direction: Direction,
    shared: u32,
    column: i64,
    rows: Rows,
    inner: u32,
    pitch: u32,
}

#[derive(Clone, Debug)]
enum Rows {
    Box { start: [i64; MAX_RANK], count: [u32; MAX_RANK] },
    Four([i64; 4]),
}

impl<'a> Tile<'a> {
    /// The box of `map` at `coordinates`, with its first byte at the shared address `shared`.
    ///
    /// # Errors
    /// [`Kind::Misaligned`], [`Kind::InvalidOperand`] for coordinates that do not fit map and mode,
    /// [`Kind::OutOfBounds`] for a store with negative coordinates or as [`Options`] ask, [`Kind::Unsupported`] for
    /// interleaved maps and what the options refuse.
    pub fn new(
        map: &'a TensorMap,
        direction: Direction,
        mode: Mode,
        coordinates: &[i32],
        shared: u32,
        options: &Options,
    ) -> Result<Self> {
        if map.interleave != Interleave::None {
            return Fault::err(Kind::Unsupported, format!("tensor copy with interleave {:?}", map.interleave));
        }
        if direction != Direction::Prefetch && !shared.is_multiple_of(SHARED_ALIGNMENT) {
            return Fault::err(
                Kind::Misaligned,
                format!("box at shared address {shared:#x}: tensor copies need {SHARED_ALIGNMENT}-byte alignment"),
            );
        }
        let inner = map.inner_bytes();
        if map.swizzle == Swizzle::B128Atom32Flip8 {
            options.flip.check("the 128-byte swizzle with 8-byte flip")?;
            if direction == Direction::Store {
                return Fault::err(Kind::InvalidOperand, "the swizzle with 8-byte flip is for loads");
            }
        }
        let (needed, name) = match mode {
            Mode::Tile => (map.rank, "tile"),
            Mode::Rows4 => (5, "gather4 and scatter4"),
        };
        if coordinates.len() != needed {
            return Fault::err(
                Kind::InvalidOperand,
                format!("{} coordinates for a map of rank {}: {name} mode takes {needed}", coordinates.len(), map.rank),
            );
        }
        if direction == Direction::Store && coordinates.iter().any(|&c| c < 0) {
            return Fault::err(Kind::OutOfBounds, format!("store to negative coordinates {coordinates:?}"));
        }
        let (unit, ..) = map.data_type.unit();
        let step = if map.data_type.is_padded() { 128 } else { unit as i32 };
        if coordinates[0] % step != 0 {
            return Fault::err(
                Kind::InvalidOperand,
                format!("coordinate {} of {:?}: a multiple of {step} is needed", coordinates[0], map.data_type),
            );
        }
        let rows = match mode {
            Mode::Tile => Rows::Box {
                start: std::array::from_fn(|d| if d < map.rank { coordinates[d] as i64 } else { 0 }),
                count: std::array::from_fn(|d| map.box_dims[d].div_ceil(map.element_strides[d].max(1))),
            },
            Mode::Rows4 if map.rank == 2 && map.box_dims[1] == 1 => {
                Rows::Four(std::array::from_fn(|i| coordinates[i + 1] as i64))
            }
            Mode::Rows4 => {
                return Fault::err(
                    Kind::TensorMap,
                    format!(
                        "{name} of a map of rank {} with {} box rows: 2 and 1 are needed",
                        map.rank, map.box_dims[1]
                    ),
                );
            }
        };
        let pitch = if map.swizzle == Swizzle::None { inner } else { map.swizzle.span() };
        let tile = Tile { map, direction, shared, column: coordinates[0] as i64, rows, inner, pitch };
        let loads = direction != Direction::Store;
        if loads && options.ragged_outside == Outside::Fault && map.is_ragged() && tile.is_outside() {
            let message = format!("box at {coordinates:?} lies wholly outside a map whose dimensions overlap");
            return Fault::err(Kind::OutOfBounds, message);
        }
        Ok(tile)
    }

    /// Bytes of the whole box, out of bounds or not: what a load adds to the completed transactions. A swizzled box
    /// narrower than its span counts its own bytes, in rows of a whole span (seen on an H200).
    pub fn bytes(&self) -> u32 {
        self.inner * self.row_count()
    }

    /// Bytes from the first to the last of the box in shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.pitch * self.row_count()
    }

    fn row_count(&self) -> u32 {
        match &self.rows {
            Rows::Box { count, .. } => count[1..].iter().product(),
            Rows::Four(_) => 4,
        }
    }

    /// Whether no element of the box is in bounds.
    pub fn is_outside(&self) -> bool {
        let (low, high) = self.inside_columns();
        low >= high || (0..self.row_count()).all(|row| self.row_address(row).is_none())
    }

    /// In-bounds elements of dimension 0, relative to the start of the box.
    fn inside_columns(&self) -> (u32, u32) {
        let count = self.map.box_dims[0] as i64;
        let low = (-self.column).clamp(0, count);
        let high = (self.map.dims[0] as i64 - self.column).clamp(0, count);
        (low as u32, high as u32)
    }

    /// Global address of the row's column 0, `None` if the row is out of bounds.
    fn row_address(&self, row: u32) -> Option<u64> {
        let map = self.map;
        let inside = |d: usize, index: i64| 0 <= index && index < map.dims[d] as i64;
        // Strides may wrap the address, as those of ragged maps do.
        let moved =
            |address: u64, d: usize, index: i64| address.wrapping_add_signed(index.wrapping_mul(map.strides[d] as i64));
        match &self.rows {
            Rows::Four(rows) => {
                let index = rows[row as usize];
                inside(1, index).then(|| moved(map.address, 1, index))
            }
            Rows::Box { start, count } => {
                let (mut rest, mut address) = (row, map.address);
                for d in 1..map.rank {
                    let index = start[d] + (rest % count[d] * map.element_strides[d]) as i64;
                    rest /= count[d];
                    if !inside(d, index) {
                        return None;
                    }
                    address = moved(address, d, index);
                }
                Some(address)
            }
        }
    }

    /// Visits the box row by row, in pieces that are contiguous in both memories. Stores skip what is out of bounds,
    /// loads get it with no global address; padding of sub-byte types and of narrow rows is not visited.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each(&self, mut visit: impl FnMut(Piece) -> Result<()>) -> Result<()> {
        let (elements, global_unit, shared_unit) = self.map.data_type.unit();
        let (low, high) = self.inside_columns();
        let column = self.column / elements as i64 * global_unit as i64;
        // Dense types are cut at 16-byte boundaries, padded ones into the data of each unit.
        let (shared_step, global_step) = if global_unit == shared_unit {
            (self.map.swizzle.grain(), self.map.swizzle.grain())
        } else {
            (16, global_unit)
        };
        let (low, high) = (low / elements * global_unit, high / elements * global_unit);
        for row in 0..self.row_count() {
            let start = self.row_address(row);
            let (low, high) = if start.is_some() && low < high { (low, high) } else { (0, 0) };
            for step in 0..self.inner / shared_step {
                let (first, end) = (step * global_step, (step + 1) * global_step);
                let shared = self.map.swizzle.apply(self.shared + row * self.pitch + step * shared_step);
                // Before, inside and after the bounds.
                let cuts = [first, low.clamp(first, end), high.clamp(first, end), end];
                for (part, window) in cuts.windows(2).enumerate() {
                    let bytes = window[1] - window[0];
                    if bytes == 0 {
                        continue;
                    }
                    let global = match start {
                        Some(start) if part == 1 => Some(start.wrapping_add_signed(column + window[0] as i64)),
                        _ => None,
                    };
                    if global.is_some() || self.direction == Direction::Load {
                        visit(Piece { global, shared: shared + (window[0] - first), bytes })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a load puts in place of `out.len()` bytes that are out of bounds. The ISA does not give the NaN's bits.
    pub fn fill(&self, out: &mut [u8]) {
        out.fill(0);
        if self.map.fill == Fill::Nan {
            let (_, size, _) = self.map.data_type.unit();
            for element in out.chunks_mut(size as usize) {
                element.fill(0xFF);
                if let Some(last) = element.last_mut() {
                    *last = 0x7F;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "tile_tests.rs"]
mod tests;
