//! `tcgen05.shift` (PTX ISA 9.7.16.9.3).

use super::{Options, Pair};
use crate::error::{Fault, Kind, Result};
use crate::tmem::{Width, split};

/// Columns of the elements that move.
const COLUMNS: usize = 8;

/// `tcgen05.shift.down`: 32-byte elements move one row down within 32 lanes, the first row stays as it is.
///
/// # Errors
/// [`Kind::Tmem`] for a lane that is no multiple of 32, [`Kind::Unsupported`] as `options` say, those of the memories.
pub fn shift_down<P: Pair>(address: u32, ctas: usize, options: &Options, pair: &mut P) -> Result<()> {
    let (lane, column) = split(address);
    if !lane.is_multiple_of(32) {
        return Fault::err(Kind::Tmem, format!("tcgen05.shift at lane {lane}: a multiple of 32 is needed"));
    }
    options.shift.check("tcgen05.shift")?;
    for cta in 0..ctas {
        let mut rows = [[0; COLUMNS]; 31];
        for (row, cells) in rows.iter_mut().enumerate() {
            pair.read_tmem(cta, lane + row as u32, column, Width::Full, cells)?;
        }
        for (row, cells) in rows.iter().enumerate() {
            pair.write_tmem(cta, lane + row as u32 + 1, column, Width::Full, cells)?;
        }
    }
    Ok(())
}
