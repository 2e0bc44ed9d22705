//! Loads and stores of the generic proxy, and what all accesses to shared memory check.

use super::address::{Place, aligned, in_lane};
use super::banks::conflicts;
use super::clock::WHOLE;
use super::registers::lanes;
use super::shared::{Proxy, Who};
use super::state::{Cluster, Cta, Warp};
use super::trace::Intent;
use super::{Machine, Work};
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op};
use crate::ptx::ast::Space;

impl Cta {
    fn check_shared(&self, offset: u32, bytes: u32) -> Result<()> {
        self.shared.check(offset, bytes)?;
        let (first, last) = self.mbarrier_range;
        if offset <= last && offset + bytes > first {
            self.mbarriers.check_access(offset, bytes)?;
        }
        Ok(())
    }

    /// Bytes of shared memory, for whoever may read them.
    pub fn load(&mut self, agents: &[String], offset: u32, bytes: u32, who: Who) -> Result<&[u8]> {
        self.check_shared(offset, bytes)?;
        self.shared.read(offset, bytes, who, agents)
    }

    /// Writes shared memory, for whoever may; bytes that are not `valid` count as unwritten afterwards.
    pub fn store(&mut self, agents: &[String], offset: u32, data: &[u8], valid: bool, who: Who) -> Result<()> {
        let bytes = data.len() as u32;
        self.check_shared(offset, bytes)?;
        let place = offset as usize..offset as usize + data.len();
        // Lanes of a warp may write the same value to the same place.
        let repeats = self.shared.bytes[place.clone()] == *data;
        self.shared.note_write(offset, bytes, who, repeats, agents)?;
        self.shared.bytes[place].copy_from_slice(data);
        self.shared.mark_written(offset, bytes, valid);
        Ok(())
    }
}

impl Warp {
    /// This lane, or several of them, as who accesses memory.
    pub fn who(&self, lane: u32, atomic: bool) -> Who<'_> {
        let lanes = if lane < WHOLE { 1 << lane } else { u32::MAX };
        Who { epoch: self.epoch(lane), knows: self.known_to(lanes), proxy: Proxy::Generic, atomic, swizzle: 0 }
    }

    /// The lane's bytes of local memory.
    fn local(&mut self, lane: usize, offset: u64, bytes: usize) -> Result<&mut [u8]> {
        let size = self.local.len() / 32;
        if offset as usize + bytes > size {
            return Fault::err(Kind::OutOfBounds, format!("local offset {offset:#x} of {size:#x} bytes"));
        }
        Ok(&mut self.local[offset as usize + lane * size..][..bytes])
    }
}

impl Machine<'_> {
    /// The counters of this warp.
    pub fn count(&mut self, warp: &Warp) -> &mut Work {
        self.counters.of(warp.index)
    }

    /// Reads what a lane names; `lane` may be [`WHOLE`] for an access of the whole warp.
    pub fn read(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        lane: u32,
        place: Place,
        strong: bool,
        out: &mut [u8],
    ) -> Result<()> {
        let bytes = out.len() as u32;
        match place {
            Place::Shared(cta, offset) => {
                aligned(offset.into(), bytes)?;
                out.copy_from_slice(cluster.ctas[cta].load(&cluster.agents, offset, bytes, warp.who(lane, strong))?);
                self.count(warp).shared_read += u64::from(bytes);
            }
            Place::Global(address) => {
                aligned(address, bytes)?;
                if strong {
                    self.synchronise(cluster, warp, lane, address, Intent::Read);
                }
                self.note_global(cluster, address, out.len(), Intent::Read, warp.who(lane, strong))?;
                let (allocation, start) = self.memory.range(address, out.len())?;
                allocation.check_written(start, out.len())?;
                out.copy_from_slice(&allocation.bytes[start..start + out.len()]);
                self.count(warp).global_read += u64::from(bytes);
            }
            Place::Local(offset) => out.copy_from_slice(warp.local(lane as usize, offset, out.len())?),
            Place::Param(offset) => {
                let params = &self.launch.params;
                match params.get(offset as usize..offset as usize + out.len()) {
                    Some(found) => out.copy_from_slice(found),
                    None => {
                        return Fault::err(
                            Kind::OutOfBounds,
                            format!("parameter offset {offset:#x} of {:#x} bytes", params.len()),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes what a lane names.
    pub fn write(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        lane: u32,
        place: Place,
        strong: bool,
        data: &[u8],
    ) -> Result<()> {
        let bytes = data.len() as u32;
        match place {
            Place::Shared(cta, offset) => {
                aligned(offset.into(), bytes)?;
                cluster.ctas[cta].store(&cluster.agents, offset, data, true, warp.who(lane, strong))?;
                self.count(warp).shared_written += u64::from(bytes);
            }
            Place::Global(address) => {
                aligned(address, bytes)?;
                self.note_global(cluster, address, data.len(), Intent::Write, warp.who(lane, strong))?;
                if strong {
                    self.synchronise(cluster, warp, lane, address, Intent::Write);
                }
                self.memory.write(address, data)?;
                self.count(warp).global_written += u64::from(bytes);
            }
            Place::Local(offset) => warp.local(lane as usize, offset, data.len())?.copy_from_slice(data),
            Place::Param(offset) => {
                return Fault::err(Kind::OutOfBounds, format!("store to parameter offset {offset:#x}"));
            }
        }
        Ok(())
    }

    /// `ld` and `st`.
    pub fn memory_access(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        let mut data = [[0u8; 32]; 32];
        match op {
            Op::Load { space, bytes, signed, d, address, offset, strong } => {
                let addresses = *warp.get(*address, mask)?;
                let (each, count) = (*bytes as usize, d.len());
                for lane in lanes(mask) {
                    let place = self.locate_in(cluster, warp, lane, *space, (addresses[lane], *offset))?;
                    self.read(cluster, warp, lane as u32, place, *strong, &mut data[lane][..each * count])
                        .map_err(|f| in_lane(f, lane))?;
                }
                if matches!(space, Space::Shared) {
                    let further = conflicts(&addresses, *offset, mask, (each * count) as u32);
                    self.count(warp).bank_conflicts += further;
                }
                let mut out: Lanes = [0; 32];
                for (i, d) in d.iter().enumerate() {
                    let Some(d) = d else { continue };
                    // 128-bit elements take two registers.
                    for half in 0..each.div_ceil(8) {
                        let (from, size) = (i * each + 8 * half, each.min(8));
                        for lane in lanes(mask) {
                            let mut word = [0; 8];
                            word[..size].copy_from_slice(&data[lane][from..from + size]);
                            let value = u64::from_le_bytes(word);
                            let unused = 64 - 8 * size as u32;
                            out[lane] =
                                if *signed && size < 8 { ((value << unused) as i64 >> unused) as u64 } else { value };
                        }
                        warp.set(d + half as u32, mask, &out)?;
                    }
                }
            }
            Op::Store { space, bytes, s, address, offset, strong } => {
                let addresses = *warp.get(*address, mask)?;
                let each = *bytes as usize;
                for (i, s) in s.iter().enumerate() {
                    for half in 0..each.div_ceil(8) {
                        let value = warp.get(s + half as u32, mask)?;
                        let (from, size) = (i * each + 8 * half, each.min(8));
                        for lane in lanes(mask) {
                            data[lane][from..from + size].copy_from_slice(&value[lane].to_le_bytes()[..size]);
                        }
                    }
                }
                for lane in lanes(mask) {
                    let place = self.locate_in(cluster, warp, lane, *space, (addresses[lane], *offset))?;
                    self.write(cluster, warp, lane as u32, place, *strong, &data[lane][..each * s.len()])
                        .map_err(|f| in_lane(f, lane))?;
                }
                if matches!(space, Space::Shared) {
                    let further = conflicts(&addresses, *offset, mask, (each * s.len()) as u32);
                    self.count(warp).bank_conflicts += further;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
