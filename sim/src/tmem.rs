//! Tensor Memory (PTX ISA 9.7.16.1): 128 lanes of 512 columns of 32 bits, with what is allocated and written.

mod access;
mod alloc;

pub use access::{Access, Shape};

use alloc::Allocator;

use crate::error::{Fault, Kind, Result};

/// Lanes.
pub const LANES: u32 = 128;
/// Columns.
pub const COLUMNS: u32 = 512;

/// Bits 15:0 of the cell hold a value.
const LOW: u8 = 1;
/// All bits do.
const FULL: u8 = 3;

/// How much of each 32-bit cell a value takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Bits 15:0. What a write leaves in the other half is not established: it counts as not written.
    Low,
    /// All 32.
    Full,
}

impl Width {
    const fn flags(self) -> u8 {
        match self {
            Width::Low => LOW,
            Width::Full => FULL,
        }
    }
}

/// Splits an address into lane and column.
pub const fn split(address: u32) -> (u32, u32) {
    (address >> 16, address & 0xFFFF)
}

/// The Tensor Memory of one SM. CTAs are numbered by the caller.
#[derive(Clone, Debug)]
pub struct TensorMemory {
    /// Lane after lane.
    cells: Vec<u32>,
    written: Vec<u8>,
    allocator: Allocator,
}

impl Default for TensorMemory {
    fn default() -> Self {
        let cells = (LANES * COLUMNS) as usize;
        TensorMemory { cells: vec![0; cells], written: vec![0; cells], allocator: Allocator::default() }
    }
}

impl TensorMemory {
    /// Refuses columns that the CTA has not allocated.
    ///
    /// # Errors
    /// [`Kind::Tmem`].
    pub fn check_columns(&self, cta: u32, column: u32, columns: u32) -> Result<()> {
        if column as u64 + columns as u64 > COLUMNS as u64 {
            return Fault::err(
                Kind::Tmem,
                format!(
                    "columns {column} to {} of Tensor Memory, which has {COLUMNS}",
                    column as u64 + columns as u64 - 1
                ),
            );
        }
        if self.allocator.holds(cta, column, columns) {
            return Ok(());
        }
        match (column..column + columns).find(|&column| self.allocator.owner(column) != Some(cta)) {
            None => Ok(()),
            Some(column) => {
                Fault::err(Kind::Tmem, format!("column {column} of Tensor Memory is not allocated to this CTA"))
            }
        }
    }

    fn range(lane: u32, column: u32, columns: usize) -> Result<std::ops::Range<usize>> {
        if lane >= LANES || column as usize + columns > COLUMNS as usize {
            return Fault::err(Kind::Tmem, format!("lane {lane}, column {column} + {columns} of Tensor Memory"));
        }
        let first = (lane * COLUMNS + column) as usize;
        Ok(first..first + columns)
    }

    /// `columns` cells of a lane; the caller has checked that they are allocated.
    ///
    /// # Errors
    /// [`Kind::Uninitialised`] if one was not written in this width since its allocation.
    pub fn row(&self, lane: u32, column: u32, columns: usize, width: Width) -> Result<&[u32]> {
        let range = Self::range(lane, column, columns)?;
        // All flags at once, because this is the path that vectorises.
        let all = self.written[range.clone()].iter().fold(FULL, |all, flags| all & flags);
        if all & width.flags() == width.flags() {
            return Ok(&self.cells[range]);
        }
        match self.written[range.clone()].iter().position(|&flags| flags & width.flags() != width.flags()) {
            None => Ok(&self.cells[range]),
            Some(at) => Fault::err(
                Kind::Uninitialised,
                format!("lane {lane}, column {} of Tensor Memory was never written", column + at as u32),
            ),
        }
    }

    /// One cell of [`TensorMemory::row`].
    #[inline]
    fn cell(&self, lane: u32, column: u32, width: Width) -> Result<u32> {
        let at = (lane * COLUMNS + column) as usize;
        match (self.cells.get(at), self.written.get(at)) {
            (Some(&value), Some(flags)) if flags & width.flags() == width.flags() => Ok(value),
            _ => self.row(lane, column, 1, width).map(|row| row[0]),
        }
    }

    /// Overwrites cells of a lane from `column` on; the caller has checked that they are allocated.
    ///
    /// # Errors
    /// [`Kind::Tmem`] beyond the memory.
    pub fn write_row(&mut self, lane: u32, column: u32, values: &[u32], width: Width) -> Result<()> {
        let range = Self::range(lane, column, values.len())?;
        self.written[range.clone()].fill(width.flags());
        self.cells[range].copy_from_slice(values);
        Ok(())
    }
}
