//! `ldmatrix` and `stmatrix`: 8 x 8 matrices of 16-bit elements, spread over the warp.

use super::Machine;
use super::address::in_lane;
use super::banks::conflicts;
use super::clock::WHOLE;
use super::state::{Cluster, Warp};
use crate::error::Result;
use crate::program::{Lanes, Op};
use crate::ptx::ast::Space;

impl Machine<'_> {
    pub fn matrix_access(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        let (registers, transpose, address, offset) = match op {
            Op::LoadMatrix { transpose, d, address, offset } => (d, *transpose, *address, *offset),
            Op::StoreMatrix { transpose, s, address, offset } => (s, *transpose, *address, *offset),
            _ => return Ok(()),
        };
        let load = matches!(op, Op::LoadMatrix { .. });
        let count = registers.len();
        let providers = if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
        let addresses = *warp.get(address, mask & providers)?;
        for (matrix, &register) in registers.iter().enumerate() {
            let mut out: Lanes = [0; 32];
            let value = if load { out } else { *warp.get(register, mask)? };
            for row in 0..8 {
                let lane = 8 * matrix + row;
                let place = self.locate_in(cluster, warp, lane, Space::Shared, (addresses[lane], offset))?;
                let mut bytes = [0u8; 16];
                // Element (row, column) is in lane 4 row + column / 2, half column % 2; transposed the other way round.
                let position = |column: usize| match transpose {
                    false => (4 * row + column / 2, 16 * (column % 2)),
                    true => (4 * column + row / 2, 16 * (row % 2)),
                };
                if load {
                    self.read(cluster, warp, WHOLE, place, false, &mut bytes).map_err(|f| in_lane(f, lane))?;
                    for column in 0..8 {
                        let (lane, shift) = position(column);
                        out[lane] |= u64::from(u16::from_le_bytes([bytes[2 * column], bytes[2 * column + 1]])) << shift;
                    }
                } else {
                    for column in 0..8 {
                        let (lane, shift) = position(column);
                        bytes[2 * column..][..2].copy_from_slice(&((value[lane] >> shift) as u16).to_le_bytes());
                    }
                    self.write(cluster, warp, WHOLE, place, false, &bytes).map_err(|f| in_lane(f, lane))?;
                }
            }
            let further = conflicts(&addresses, offset, mask & (255 << (8 * matrix)), 16);
            self.count(warp).bank_conflicts += further;
            if load {
                warp.set(register, mask, &out)?;
            }
        }
        Ok(())
    }
}
