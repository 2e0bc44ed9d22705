//! Allocation of columns (PTX ISA 9.7.16.7).

use std::collections::HashMap;

use super::{COLUMNS, LANES, TensorMemory};
use crate::error::{Fault, Kind, Result};

/// Columns come in units of this many.
const UNIT: u32 = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Allocator {
    /// First column, columns and CTA of each allocation, ascending.
    allocations: Vec<(u32, u32, u32)>,
    permits: HashMap<u32, Permit>,
}

/// What a CTA may still ask for.
#[derive(Clone, Copy, Debug, Default)]
struct Permit {
    last_columns: Option<u32>,
    relinquished: bool,
}

impl Allocator {
    pub(super) fn owner(&self, column: u32) -> Option<u32> {
        let holds = |&&(first, columns, _): &&(u32, u32, u32)| (first..first + columns).contains(&column);
        self.allocations.iter().find(holds).map(|&(.., cta)| cta)
    }

    /// Whether one allocation of the CTA has all these columns.
    pub(super) fn holds(&self, cta: u32, column: u32, columns: u32) -> bool {
        let holds = |&(first, held, owner): &(u32, u32, u32)| {
            owner == cta && first <= column && column + columns <= first + held
        };
        self.allocations.iter().any(holds)
    }

    /// First column from `from` on at which `columns` are free.
    fn free(&self, from: u32, columns: u32) -> Option<u32> {
        let clash =
            |at: u32| self.allocations.iter().any(|&(first, held, _)| at < first + held && first < at + columns);
        (from..=COLUMNS.checked_sub(columns)?).step_by(UNIT as usize).find(|&at| !clash(at))
    }
}

fn misuse<T>(message: String) -> Result<T> {
    Fault::err(Kind::Tmem, message)
}

impl TensorMemory {
    /// Whether the CTA may ask for `columns` now.
    fn check_alloc(&self, cta: u32, columns: u32) -> Result<()> {
        if !columns.is_power_of_two() || !(UNIT..=COLUMNS).contains(&columns) {
            return misuse(format!(
                "tcgen05.alloc of {columns} columns: a power of two from {UNIT} to {COLUMNS} is needed"
            ));
        }
        let permit = self.allocator.permits.get(&cta).copied().unwrap_or_default();
        if permit.relinquished {
            return misuse("tcgen05.alloc after tcgen05.relinquish_alloc_permit".into());
        }
        match permit.last_columns {
            Some(last) if columns > last => {
                misuse(format!("tcgen05.alloc of {columns} columns after one of {last}: sizes must not grow"))
            }
            _ => Ok(()),
        }
    }

    fn grant(&mut self, cta: u32, column: u32, columns: u32) {
        self.allocator.permits.entry(cta).or_default().last_columns = Some(columns);
        self.allocator.allocations.push((column, columns, cta));
        self.allocator.allocations.sort_unstable();
        self.forget(column, columns);
    }

    /// The contents of new and of freed columns are undefined.
    fn forget(&mut self, column: u32, columns: u32) {
        for lane in 0..LANES {
            let first = (lane * COLUMNS + column) as usize;
            self.written[first..first + columns as usize].fill(0);
        }
    }

    /// `tcgen05.alloc.cta_group::1`: the address, or `None` if the warp must wait until columns are freed.
    ///
    /// # Errors
    /// [`Kind::Tmem`] for a bad size, a size that grows, or a CTA that gave up its permit.
    pub fn alloc(&mut self, cta: u32, columns: u32) -> Result<Option<u32>> {
        self.check_alloc(cta, columns)?;
        let Some(column) = self.allocator.free(0, columns) else { return Ok(None) };
        self.grant(cta, column, columns);
        Ok(Some(column))
    }

    /// `tcgen05.alloc.cta_group::2`, once a warp of each CTA of the pair has arrived: the same columns in both.
    ///
    /// # Errors
    /// As [`TensorMemory::alloc`].
    pub fn alloc_pair(pair: [&mut TensorMemory; 2], ctas: [u32; 2], columns: u32) -> Result<Option<u32>> {
        let [even, odd] = pair;
        even.check_alloc(ctas[0], columns)?;
        odd.check_alloc(ctas[1], columns)?;
        let mut from = 0;
        while let Some(column) = even.allocator.free(from, columns) {
            if odd.allocator.free(column, columns) == Some(column) {
                even.grant(ctas[0], column, columns);
                odd.grant(ctas[1], column, columns);
                return Ok(Some(column));
            }
            from = column + UNIT;
        }
        Ok(None)
    }

    /// `tcgen05.dealloc`. For a pair, each CTA's memory is told.
    ///
    /// # Errors
    /// [`Kind::Tmem`] for an address and size that no allocation of the CTA has.
    pub fn dealloc(&mut self, cta: u32, address: u32, columns: u32) -> Result<()> {
        match self.allocator.allocations.iter().position(|&held| held == (address, columns, cta)) {
            Some(at) => {
                self.allocator.allocations.remove(at);
                self.forget(address, columns);
                Ok(())
            }
            None => misuse(format!(
                "tcgen05.dealloc of {columns} columns at {address:#x}, which this CTA did not allocate so"
            )),
        }
    }

    /// `tcgen05.relinquish_alloc_permit`.
    pub fn relinquish(&mut self, cta: u32) {
        self.allocator.permits.entry(cta).or_default().relinquished = true;
    }

    /// The CTA exits.
    ///
    /// # Errors
    /// [`Kind::Tmem`] if it still holds columns.
    pub fn exit(&mut self, cta: u32) -> Result<()> {
        self.allocator.permits.remove(&cta);
        match self.allocator.allocations.iter().find(|&&(.., owner)| owner == cta) {
            None => Ok(()),
            Some((first, columns, _)) => {
                misuse(format!("the CTA exits with {columns} columns at {first:#x} of Tensor Memory allocated"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmem::Width;

    #[test]
    fn columns_are_granted_and_freed() {
        let mut tmem = TensorMemory::default();
        assert_eq!(tmem.alloc(0, 256).unwrap(), Some(0));
        assert_eq!(tmem.alloc(1, 256).unwrap(), Some(256));
        assert_eq!(tmem.alloc(0, 32).unwrap(), None);
        assert!(tmem.check_columns(0, 0, 256).is_ok() && tmem.check_columns(0, 255, 2).is_err());
        assert!(tmem.check_columns(1, 256, 256).is_ok() && tmem.check_columns(1, 511, 2).is_err());
        tmem.dealloc(0, 0, 256).unwrap();
        assert_eq!(tmem.alloc(0, 32).unwrap(), Some(0));
        assert!(tmem.exit(0).is_err());
        tmem.dealloc(0, 0, 32).unwrap();
        tmem.exit(0).unwrap();
    }

    #[test]
    fn misuse_is_refused() {
        let mut tmem = TensorMemory::default();
        for columns in [0, 16, 48, 1024] {
            assert_eq!(tmem.alloc(0, columns).unwrap_err().kind, Kind::Tmem);
        }
        tmem.alloc(0, 64).unwrap();
        assert!(tmem.alloc(0, 128).is_err());
        assert!(tmem.dealloc(0, 0, 32).is_err() && tmem.dealloc(1, 0, 64).is_err() && tmem.dealloc(0, 32, 64).is_err());
        tmem.dealloc(0, 0, 64).unwrap();
        assert!(tmem.dealloc(0, 0, 64).is_err());
        tmem.relinquish(0);
        assert!(tmem.alloc(0, 32).is_err() && tmem.alloc(1, 32).is_ok());
    }

    #[test]
    fn a_pair_gets_the_same_columns() {
        let (mut even, mut odd) = (TensorMemory::default(), TensorMemory::default());
        even.alloc(7, 32).unwrap();
        odd.alloc(8, 64).unwrap();
        assert_eq!(TensorMemory::alloc_pair([&mut even, &mut odd], [0, 1], 128).unwrap(), Some(64));
        assert!(even.check_columns(0, 64, 128).is_ok() && odd.check_columns(1, 64, 128).is_ok());
        assert_eq!(TensorMemory::alloc_pair([&mut even, &mut odd], [2, 3], 512).unwrap(), None);
    }

    #[test]
    fn new_columns_hold_nothing() {
        let mut tmem = TensorMemory::default();
        tmem.alloc(0, 32).unwrap();
        tmem.write_row(5, 3, &[1, 2], Width::Full).unwrap();
        assert_eq!(tmem.row(5, 3, 2, Width::Full).unwrap(), [1, 2]);
        assert_eq!(tmem.row(5, 3, 3, Width::Full).unwrap_err().kind, Kind::Uninitialised);
        tmem.dealloc(0, 0, 32).unwrap();
        tmem.alloc(0, 32).unwrap();
        assert_eq!(tmem.row(5, 3, 2, Width::Low).unwrap_err().kind, Kind::Uninitialised);
        tmem.write_row(5, 3, &[7], Width::Low).unwrap();
        assert!(tmem.row(5, 3, 1, Width::Low).is_ok() && tmem.row(5, 3, 1, Width::Full).is_err());
        assert!(tmem.row(128, 0, 1, Width::Low).is_err() && tmem.row(0, 511, 2, Width::Low).is_err());
    }
}
