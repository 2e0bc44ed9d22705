//! `tcgen05.ld` and `tcgen05.st` (PTX ISA 9.7.16.8): which lane's register holds which cell.

use super::{COLUMNS, TensorMemory, Width, split};
use crate::error::{Fault, Kind, Result};

/// `.shape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `.32x32b`.
    L32B32,
    /// `.16x64b`.
    L16B64,
    /// `.16x128b`.
    L16B128,
    /// `.16x256b`.
    L16B256,
    /// `.16x32bx2` with its `immHalfSplitoff`.
    L16B32X2(u32),
}

/// A load or store of one warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Shape.
    pub shape: Shape,
    /// `.xN`.
    pub count: u32,
    /// `.pack::16b` of a load, `.unpack::16b` of a store: two columns of 16 bits per register.
    pub packed: bool,
}

impl Access {
    /// Registers per thread.
    pub const fn registers(&self) -> u32 {
        match self.shape {
            Shape::L32B32 | Shape::L16B64 | Shape::L16B32X2(_) => self.count,
            Shape::L16B128 => 2 * self.count,
            Shape::L16B256 => 4 * self.count,
        }
    }

    /// Lane and column, relative to the address, of a register of thread `t`; packed accesses count pairs of columns.
    #[inline]
    pub const fn cell(&self, t: u32, register: u32) -> (u32, u32) {
        let r = register;
        match self.shape {
            Shape::L32B32 => (t, r),
            Shape::L16B64 => (t / 4 + 8 * (t % 2), 2 * r + t / 2 % 2),
            Shape::L16B128 => (t / 4 + 8 * (r % 2), 4 * (r / 2) + t % 4),
            Shape::L16B256 => (t / 4 + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * (t % 4) + r % 2),
            Shape::L16B32X2(offset) => (t % 16, r + t / 16 * offset),
        }
    }

    /// Columns from the first to the last.
    fn columns(&self) -> u64 {
        let plain = match self.shape {
            Shape::L32B32 => self.count as u64,
            Shape::L16B64 => 2 * self.count as u64,
            Shape::L16B128 => 4 * self.count as u64,
            Shape::L16B256 => 8 * self.count as u64,
            Shape::L16B32X2(offset) => self.count as u64 + offset as u64,
        };
        if self.packed { 2 * plain } else { plain }
    }

    /// Checks the shape and the address, and returns lane and column of the latter.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`] for a repetition that does not exist, [`Kind::Unsupported`] for a packed access with
    /// split halves (whether the split counts packed columns is not established), [`Kind::Tmem`] for lanes that the
    /// warp does not reach or columns beyond the memory. `warp` is the rank of the warp in its warpgroup.
    pub fn check(&self, address: u32, warp: u32) -> Result<(u32, u32)> {
        let most = match self.shape {
            Shape::L16B128 => 64,
            Shape::L16B256 => 32,
            _ => 128,
        };
        if !self.count.is_power_of_two() || self.count > most {
            return Fault::err(Kind::InvalidOperand, format!("{:?} repeated {} times", self.shape, self.count));
        }
        if self.packed && matches!(self.shape, Shape::L16B32X2(_)) {
            return Fault::err(Kind::Unsupported, "packed access of shape 16x32bx2");
        }
        let (lane, column) = split(address);
        let allowed = lane == 32 * warp || (self.shape != Shape::L32B32 && lane == 32 * warp + 16);
        if !allowed {
            return Fault::err(
                Kind::Tmem,
                format!(
                    "{:?} at lane {lane} by warp {warp} of its warpgroup, which reaches lanes from {}",
                    self.shape,
                    32 * warp
                ),
            );
        }
        if column as u64 + self.columns() > COLUMNS as u64 {
            return Fault::err(Kind::Tmem, format!("{} columns from column {column} of Tensor Memory", self.columns()));
        }
        Ok((lane, column))
    }

    /// Calls `visit(register, t, lane, column)` for every cell, both absolute; a packed register has two in a row.
    ///
    /// # Errors
    /// As [`Access::check`], and those of `visit`.
    pub fn for_each(
        &self,
        address: u32,
        warp: u32,
        mut visit: impl FnMut(usize, usize, u32, u32) -> Result<()>,
    ) -> Result<()> {
        let (lane, column) = self.check(address, warp)?;
        for register in 0..self.registers() {
            for t in 0..32 {
                let (l, c) = self.cell(t, register);
                if self.packed {
                    for half in 0..2 {
                        visit(register as usize, t as usize, lane + l, column + 2 * c + half)?;
                    }
                } else {
                    visit(register as usize, t as usize, lane + l, column + c)?;
                }
            }
        }
        Ok(())
    }
}

impl Access {
    /// Calls `visit(lane, column, count)` for cells of a lane that lie side by side, until all have been named.
    ///
    /// # Errors
    /// As [`Access::check`], and those of `visit`.
    pub fn rows(&self, address: u32, warp: u32, mut visit: impl FnMut(u32, u32, u32) -> Result<()>) -> Result<()> {
        if self.shape != Shape::L32B32 {
            return self.for_each(address, warp, |_, _, lane, column| visit(lane, column, 1));
        }
        let (lane, column) = self.check(address, warp)?;
        (0..32).try_for_each(|t| visit(lane + t, column, self.columns() as u32))
    }
}

impl TensorMemory {
    fn check_access(&self, cta: u32, access: &Access, address: u32, warp: u32) -> Result<()> {
        let (_, column) = access.check(address, warp)?;
        if let Shape::L16B32X2(offset) = access.shape {
            self.check_columns(cta, column, access.count)?;
            return self.check_columns(cta, column + offset, access.count);
        }
        self.check_columns(cta, column, access.columns() as u32)
    }

    /// `tcgen05.ld`: `[register][thread]`.
    ///
    /// # Errors
    /// As [`Access::check`] and [`TensorMemory::row`], [`Kind::Tmem`] for columns that the CTA has not allocated.
    pub fn load(&self, cta: u32, access: &Access, address: u32, warp: u32) -> Result<Vec<[u32; 32]>> {
        self.check_access(cta, access, address, warp)?;
        let mut registers = vec![[0; 32]; access.registers() as usize];
        let width = if access.packed { Width::Low } else { Width::Full };
        if access.shape == Shape::L32B32 && !access.packed {
            let (lane, column) = access.check(address, warp)?;
            for t in 0..32 {
                let row = self.row(lane + t, column, registers.len(), width)?;
                registers.iter_mut().zip(row).for_each(|(register, &value)| register[t as usize] = value);
            }
            return Ok(registers);
        }
        let mut half = 0;
        access.for_each(address, warp, |register, t, lane, column| {
            let value = self.cell(lane, column, width)?;
            if access.packed {
                registers[register][t] |= (value & 0xFFFF) << (16 * half);
                half ^= 1;
            } else {
                registers[register][t] = value;
            }
            Ok(())
        })?;
        Ok(registers)
    }

    /// `tcgen05.st` of `[register][thread]`.
    ///
    /// # Errors
    /// As [`TensorMemory::load`], without uninitialised cells; [`Kind::InvalidOperand`] for too few registers.
    pub fn store(&mut self, cta: u32, access: &Access, address: u32, warp: u32, registers: &[[u32; 32]]) -> Result<()> {
        self.check_access(cta, access, address, warp)?;
        if registers.len() != access.registers() as usize {
            return Fault::err(
                Kind::InvalidOperand,
                format!("{} registers where {access:?} takes {}", registers.len(), access.registers()),
            );
        }
        if access.shape == Shape::L32B32 && !access.packed {
            let (lane, column) = access.check(address, warp)?;
            return (0..32).try_for_each(|t| {
                let row: Vec<u32> = registers.iter().map(|register| register[t as usize]).collect();
                self.write_row(lane + t, column, &row, Width::Full)
            });
        }
        let mut half = 0;
        access.for_each(address, warp, |register, t, lane, column| {
            let value = registers[register][t];
            if access.packed {
                let value = value >> (16 * half) & 0xFFFF;
                half ^= 1;
                return self.write_row(lane, column, &[value], Width::Low);
            }
            self.write_row(lane, column, &[value], Width::Full)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SHAPES: [(Shape, u32); 5] = [
        (Shape::L32B32, 128),
        (Shape::L16B64, 128),
        (Shape::L16B128, 64),
        (Shape::L16B256, 32),
        (Shape::L16B32X2(200), 128),
    ];

    fn filled() -> TensorMemory {
        let mut tmem = TensorMemory::default();
        tmem.alloc(0, 512).unwrap();
        for lane in 0..128 {
            let row: Vec<u32> = (0..512).map(|column| lane << 16 | column).collect();
            tmem.write_row(lane, 0, &row, Width::Full).unwrap();
        }
        tmem
    }

    /// Every shape covers a rectangle (two for split halves) once.
    #[test]
    fn shapes_cover_their_rectangles() {
        for (shape, most) in SHAPES {
            let mut count = 1;
            while count <= most {
                let access = Access { shape, count, packed: false };
                let cells: HashSet<_> = (0..access.registers())
                    .flat_map(|r| (0..32).map(move |t| (r, t)))
                    .map(|(r, t)| access.cell(t, r))
                    .collect();
                assert_eq!(cells.len() as u32, 32 * access.registers());
                let (lanes, width) = match shape {
                    Shape::L32B32 => (32, count),
                    Shape::L16B64 => (16, 2 * count),
                    Shape::L16B128 => (16, 4 * count),
                    Shape::L16B256 => (16, 8 * count),
                    Shape::L16B32X2(_) => (16, count),
                };
                let inside = |column: u32| match shape {
                    Shape::L16B32X2(offset) => column < width || (offset..offset + width).contains(&column),
                    _ => column < width,
                };
                assert!(cells.iter().all(|&(lane, column)| lane < lanes && inside(column)), "{shape:?} x{count}");
                count *= 2;
            }
        }
    }

    #[test]
    fn loads_follow_the_shapes_and_stores_undo_them() {
        let tmem = filled();
        for (shape, _) in SHAPES {
            for (warp, extra, column) in [(0, 0, 0), (3, 16, 5), (2, 0, 100)] {
                let extra = if shape == Shape::L32B32 { 0 } else { extra };
                let access = Access { shape, count: 4, packed: false };
                let address = (32 * warp + extra) << 16 | column;
                let registers = tmem.load(0, &access, address, warp).unwrap();
                for (r, lanes) in registers.iter().enumerate() {
                    for (t, value) in lanes.iter().enumerate() {
                        let (lane, c) = access.cell(t as u32, r as u32);
                        assert_eq!(*value, (32 * warp + extra + lane) << 16 | (column + c));
                    }
                }
                let mut copy = TensorMemory::default();
                copy.alloc(0, 512).unwrap();
                copy.store(0, &access, address, warp, &registers).unwrap();
                assert_eq!(copy.load(0, &access, address, warp).unwrap(), registers);
            }
        }
    }

    /// Both ways to name the cells of an access name the same ones.
    #[test]
    fn rows_are_the_cells() {
        for (shape, _) in SHAPES {
            for packed in [false, true] {
                let access = Access { shape, count: 4, packed };
                let (mut cells, mut of_rows) = (HashSet::new(), HashSet::new());
                let visited = access.for_each(32 << 16 | 7, 1, |_, _, lane, column| {
                    cells.insert((lane, column));
                    Ok(())
                });
                let rows = access.rows(32 << 16 | 7, 1, |lane, column, count| {
                    of_rows.extend((column..column + count).map(|column| (lane, column)));
                    Ok(())
                });
                assert_eq!((cells, visited.is_ok()), (of_rows, rows.is_ok()), "{shape:?} {packed}");
            }
        }
    }

    /// Rows of the 16x256b shape are those of the accumulator fragment of `mma` instructions.
    #[test]
    fn worked_cells() {
        let cell = |shape, t, r| Access { shape, count: 1, packed: false }.cell(t, r);
        assert_eq!((cell(Shape::L16B256, 5, 0), cell(Shape::L16B256, 5, 3)), ((1, 2), (9, 3)));
        assert_eq!((cell(Shape::L16B64, 3, 0), cell(Shape::L16B64, 6, 1)), ((8, 1), (1, 3)));
        assert_eq!((cell(Shape::L16B128, 6, 1), cell(Shape::L16B128, 31, 2)), ((9, 2), (7, 7)));
        assert_eq!((cell(Shape::L16B32X2(8), 17, 3), cell(Shape::L32B32, 17, 3)), ((1, 11), (17, 3)));
    }

    #[test]
    fn packed_registers_hold_two_columns() {
        let tmem = filled();
        let access = Access { shape: Shape::L32B32, count: 8, packed: true };
        let registers = tmem.load(0, &access, 32 << 16 | 4, 1).unwrap();
        for (r, lanes) in registers.iter().enumerate() {
            assert!(lanes.iter().all(|&value| value == (4 + 2 * r as u32) | (5 + 2 * r as u32) << 16));
        }
        let mut copy = TensorMemory::default();
        copy.alloc(0, 64).unwrap();
        copy.store(0, &access, 32 << 16 | 4, 1, &registers).unwrap();
        assert_eq!(copy.row(40, 4, 4, Width::Low).unwrap(), [4, 5, 6, 7]);
        assert_eq!(copy.load(0, &access, 32 << 16 | 4, 1).unwrap(), registers);
        assert!(copy.row(40, 4, 1, Width::Full).is_err());
    }

    #[test]
    fn misuse_is_refused() {
        let mut tmem = filled();
        let kind = |tmem: &TensorMemory, shape, count, packed, address, warp| {
            tmem.load(0, &Access { shape, count, packed }, address, warp).unwrap_err().kind
        };
        assert_eq!(kind(&tmem, Shape::L32B32, 3, false, 0, 0), Kind::InvalidOperand);
        assert_eq!(kind(&tmem, Shape::L16B128, 128, false, 0, 0), Kind::InvalidOperand);
        assert_eq!(kind(&tmem, Shape::L32B32, 1, false, 0, 1), Kind::Tmem);
        assert_eq!(kind(&tmem, Shape::L32B32, 1, false, 16 << 16, 0), Kind::Tmem);
        assert_eq!(kind(&tmem, Shape::L16B64, 1, false, 8 << 16, 0), Kind::Tmem);
        assert_eq!(kind(&tmem, Shape::L32B32, 128, false, 400, 0), Kind::Tmem);
        assert_eq!(kind(&tmem, Shape::L16B32X2(2), 1, true, 0, 0), Kind::Unsupported);
        tmem.dealloc(0, 0, 512).unwrap();
        tmem.alloc(0, 32).unwrap();
        assert_eq!(kind(&tmem, Shape::L32B32, 1, false, 32, 0), Kind::Tmem);
        assert_eq!(kind(&tmem, Shape::L32B32, 1, false, 0, 0), Kind::Uninitialised);
        let access = Access { shape: Shape::L32B32, count: 2, packed: false };
        assert!(tmem.store(0, &access, 0, 0, &[[0; 32]]).is_err());
    }
}
