//! Loads and stores of the generic proxy, and address conversions.

use super::Machine;
use super::global::{Access, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use super::setup::generic;
use super::shared::{Proxy, Who};
use super::state::{Cluster, Warp};
use super::step::lanes;
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op};
use crate::ptx::ast::Space;

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Global(u64),
    /// CTA of the cluster and offset.
    Shared(usize, u32),
    Local(u64),
    Param(u64),
}

impl Machine<'_> {
    /// Finds what an address of a space names.
    pub fn locate(&self, cluster: &Cluster, cta: usize, space: Space, address: u64) -> Result<Place> {
        let shared = |word: u32, own: bool| {
            let (rank, offset) = ((word >> 24) as usize, word & 0xFF_FFFF);
            if rank >= cluster.ctas.len() {
                let size = cluster.ctas.len();
                return Fault::err(
                    Kind::OutOfBounds,
                    format!("shared address {word:#x} names rank {rank} of a cluster of {size} CTAs"),
                );
            }
            if own && rank != cta {
                return Fault::err(
                    Kind::OutOfBounds,
                    format!(".shared::cta address {word:#x} names the CTA of rank {rank}, not the executing one"),
                );
            }
            if cluster.ctas[rank].exited && rank != cta {
                return Fault::err(Kind::Exit, format!("shared address {word:#x} names a CTA that has exited"));
            }
            Ok(Place::Shared(rank, offset))
        };
        match space {
            Space::Shared => shared(address as u32, true),
            Space::SharedCluster => shared(address as u32, false),
            Space::Local => Ok(Place::Local(address & 0xFFFF_FFFF)),
            Space::Param => Ok(Place::Param(address & 0xFFFF_FFFF)),
            Space::Global | Space::Const => Ok(Place::Global(address)),
            Space::Generic => match address & WINDOW {
                SHARED_WINDOW => shared(address as u32, false),
                LOCAL_WINDOW => Ok(Place::Local(address & 0xFFFF_FFFF)),
                PARAM_WINDOW => Ok(Place::Param(address & 0xFFFF_FFFF)),
                _ => Ok(Place::Global(address)),
            },
        }
    }

    pub fn read(
        &mut self,
        cluster: &mut Cluster,
        warp: &Warp,
        lane: usize,
        place: Place,
        strong: bool,
        out: &mut [u8],
    ) -> Result<()> {
        let bytes = out.len() as u32;
        match place {
            Place::Shared(cta, offset) => {
                aligned(offset.into(), bytes)?;
                let target = &mut cluster.ctas[cta];
                target.shared.check(offset, bytes)?;
                if offset <= target.mbarrier_range.1 && offset + bytes > target.mbarrier_range.0 {
                    target.mbarriers.check_access(offset, bytes)?;
                }
                target.shared.check_written(offset, bytes)?;
                let who =
                    Who { epoch: warp.epoch(), knows: &warp.knows, proxy: Proxy::Generic, atomic: strong, swizzle: 0 };
                let agents = &cluster.agents;
                target.shared.note_read(offset, bytes, who, &|e| agents[e.agent() as usize].clone())?;
                out.copy_from_slice(&target.shared.bytes[offset as usize..][..out.len()]);
                self.counters.shared_read += u64::from(bytes);
            }
            Place::Global(address) => {
                aligned(address, bytes)?;
                self.note_global(cluster, warp, address, out.len(), false, strong)?;
                let (allocation, start) = self.memory.range(address, out.len())?;
                allocation.check_written(start, out.len())?;
                out.copy_from_slice(&allocation.bytes[start..start + out.len()]);
                self.counters.global_read += u64::from(bytes);
            }
            Place::Local(offset) => {
                let size = warp.local.len() / 32;
                let start = offset as usize + lane * size;
                if offset as usize + out.len() > size {
                    return Fault::err(Kind::OutOfBounds, format!("local offset {offset:#x} of {size:#x} bytes"));
                }
                out.copy_from_slice(&warp.local[start..start + out.len()]);
            }
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

    pub fn write(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        lane: usize,
        place: Place,
        strong: bool,
        data: &[u8],
    ) -> Result<()> {
        let bytes = data.len() as u32;
        match place {
            Place::Shared(cta, offset) => {
                aligned(offset.into(), bytes)?;
                let target = &mut cluster.ctas[cta];
                target.shared.check(offset, bytes)?;
                if offset <= target.mbarrier_range.1 && offset + bytes > target.mbarrier_range.0 {
                    target.mbarriers.check_access(offset, bytes)?;
                }
                let who =
                    Who { epoch: warp.epoch(), knows: &warp.knows, proxy: Proxy::Generic, atomic: strong, swizzle: 0 };
                let agents = &cluster.agents;
                target.shared.note_write(offset, bytes, who, &|e| agents[e.agent() as usize].clone())?;
                target.shared.bytes[offset as usize..][..data.len()].copy_from_slice(data);
                target.shared.mark_written(offset, bytes, true);
                self.counters.shared_written += u64::from(bytes);
            }
            Place::Global(address) => {
                aligned(address, bytes)?;
                self.note_global(cluster, warp, address, data.len(), true, strong)?;
                self.memory.write(address, data)?;
                self.counters.global_written += u64::from(bytes);
            }
            Place::Local(offset) => {
                let size = warp.local.len() / 32;
                let start = offset as usize + lane * size;
                if offset as usize + data.len() > size {
                    return Fault::err(Kind::OutOfBounds, format!("local offset {offset:#x} of {size:#x} bytes"));
                }
                warp.local[start..start + data.len()].copy_from_slice(data);
            }
            Place::Param(offset) => {
                return Fault::err(Kind::OutOfBounds, format!("store to parameter offset {offset:#x}"));
            }
        }
        Ok(())
    }

    /// Reports two accesses to global memory in one launch that nothing orders.
    pub fn note_global(
        &mut self,
        cluster: &Cluster,
        warp: &Warp,
        address: u64,
        bytes: usize,
        write: bool,
        atomic: bool,
    ) -> Result<()> {
        self.global_order |= atomic;
        if write {
            self.progress = self.time;
        }
        let (launch, order) = (self.launch.number, self.global_order);
        let epoch = warp.epoch();
        let (allocation, start) = self.memory.range(address, bytes)?;
        let base = allocation.base;
        for index in start / 4..=(start + bytes - 1) / 4 {
            let low = start.saturating_sub(4 * index).min(4);
            let high = (start + bytes - 4 * index).min(4);
            let mask = ((1u8 << high) - 1) & !((1u8 << low) - 1);
            let own = Access { launch, cluster: cluster.number, epoch, atomic, bytes: mask, generic: true };
            let trace = &mut allocation.traces()[index];
            let clash = |other: &Access| {
                other.launch == launch
                    && other.bytes & mask != 0
                    && !(other.atomic && atomic)
                    && match other.cluster == cluster.number {
                        true => other.epoch.agent() != epoch.agent() && !warp.knows.all.covers(other.epoch),
                        false => !order,
                    }
            };
            let other = match () {
                () if clash(&trace.writer) => Some(("written", trace.writer)),
                () if write && clash(&trace.reader) => Some(("read", trace.reader)),
                () => None,
            };
            if let Some((what, other)) = other {
                let by = match other.cluster == cluster.number {
                    true => cluster.agent_name(other.epoch),
                    false => format!("cluster {}", other.cluster),
                };
                return Fault::err(
                    Kind::Race,
                    format!(
                        "global {:#x} was {what} by {by} in the same launch, and nothing orders the two accesses",
                        base + 4 * index as u64
                    ),
                );
            }
            match write {
                true => trace.writer = own,
                false => trace.reader = own,
            }
        }
        Ok(())
    }

    pub fn memory_access(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        let mut out: Lanes = [0; 32];
        match op {
            Op::Load { space, bytes, signed, d, address, offset, acquire } => {
                let addresses = *warp.get(*address, mask)?;
                let (each, count) = (*bytes as usize, d.len());
                let mut data = [[0u8; 32]; 32];
                let window = |address: u64| if short(*space) { address & 0xFFFF_FFFF } else { address };
                for lane in lanes(mask) {
                    let at = window(addresses[lane].wrapping_add_signed(*offset));
                    let place = self.locate(cluster, warp.cta, *space, at).map_err(|f| in_lane(f, lane))?;
                    self.read(cluster, warp, lane, place, *acquire, &mut data[lane][..each * count])
                        .map_err(|f| in_lane(f, lane))?;
                }
                if matches!(space, Space::Shared) {
                    self.count_conflicts(&addresses, mask, (each * count) as u32);
                }
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
                Ok(())
            }
            Op::Store { space, bytes, s, address, offset, release } => {
                let addresses = *warp.get(*address, mask)?;
                let each = *bytes as usize;
                let mut data = [[0u8; 32]; 32];
                for (i, s) in s.iter().enumerate() {
                    for half in 0..each.div_ceil(8) {
                        let value = warp.get(s + half as u32, mask)?;
                        let (from, size) = (i * each + 8 * half, each.min(8));
                        for lane in lanes(mask) {
                            data[lane][from..from + size].copy_from_slice(&value[lane].to_le_bytes()[..size]);
                        }
                    }
                }
                let window = |address: u64| if short(*space) { address & 0xFFFF_FFFF } else { address };
                for lane in lanes(mask) {
                    let at = window(addresses[lane].wrapping_add_signed(*offset));
                    let place = self.locate(cluster, warp.cta, *space, at).map_err(|f| in_lane(f, lane))?;
                    self.write(cluster, warp, lane, place, *release, &data[lane][..each * s.len()])
                        .map_err(|f| in_lane(f, lane))?;
                }
                if matches!(space, Space::Shared) {
                    self.count_conflicts(&addresses, mask, (each * s.len()) as u32);
                }
                Ok(())
            }
            Op::Convert { wide: to, generic: Some(space), d, s } => {
                let value = *warp.get(*s, mask)?;
                for lane in lanes(mask) {
                    out[lane] = match to {
                        true if matches!(space, Space::Global | Space::Const) => value[lane],
                        true => value[lane] & 0xFFFF_FFFF,
                        false => generic(*space, value[lane]),
                    };
                }
                warp.set(*d, mask, &out)
            }
            Op::MapRank { d, address, rank } => {
                let (value, rank) = (warp.get(*address, mask)?, warp.get(*rank, mask)?);
                for lane in lanes(mask) {
                    let size = cluster.ctas.len() as u64;
                    if rank[lane] & 0xFFFF_FFFF >= size {
                        return Fault::err(
                            Kind::OutOfBounds,
                            format!("mapa to rank {} of a cluster of {size} CTAs", rank[lane] & 0xFFFF_FFFF),
                        );
                    }
                    out[lane] = value[lane] & !0xFF00_0000 | rank[lane] << 24;
                }
                warp.set(*d, mask, &out)
            }
            Op::GetRank { d, address } => {
                let value = warp.get(*address, mask)?;
                for lane in lanes(mask) {
                    out[lane] = value[lane] >> 24 & 255;
                }
                warp.set(*d, mask, &out)
            }
            _ => Ok(()),
        }
    }

    /// Passes beyond the first that the banks need; wide accesses go by quarters or halves of the warp.
    fn count_conflicts(&mut self, addresses: &Lanes, mask: u32, bytes: u32) {
        let lanes_of_pass = (128 / bytes.max(4)).clamp(8, 32) as usize;
        for first in (0..32).step_by(lanes_of_pass) {
            let mut words = [[u32::MAX; 4]; 32];
            let mut passes = 1;
            for lane in (first..first + lanes_of_pass).filter(|lane| mask >> lane & 1 == 1) {
                let word = addresses[lane] as u32 / 4;
                let bank = &mut words[word as usize % 32];
                match bank.iter().position(|&w| w == word || w == u32::MAX) {
                    Some(at) => {
                        bank[at] = word;
                        passes = passes.max(at as u64 + 1);
                    }
                    None => passes = passes.max(5),
                }
            }
            self.counters.bank_conflicts += passes - 1;
        }
    }

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
                let at = addresses[lane].wrapping_add_signed(offset) & 0xFFFF_FFFF;
                let place = self.locate(cluster, warp.cta, Space::Shared, at).map_err(|f| in_lane(f, lane))?;
                let mut bytes = [0u8; 16];
                // Element (row, column) is in lane 4 row + column / 2, half column % 2; transposed the other way round.
                let position = |column: usize| match transpose {
                    false => (4 * row + column / 2, 16 * (column % 2)),
                    true => (4 * column + row / 2, 16 * (row % 2)),
                };
                if load {
                    self.read(cluster, warp, lane, place, false, &mut bytes).map_err(|f| in_lane(f, lane))?;
                    for column in 0..8 {
                        let (lane, shift) = position(column);
                        out[lane] |= u64::from(u16::from_le_bytes([bytes[2 * column], bytes[2 * column + 1]])) << shift;
                    }
                } else {
                    for column in 0..8 {
                        let (lane, shift) = position(column);
                        bytes[2 * column..][..2].copy_from_slice(&((value[lane] >> shift) as u16).to_le_bytes());
                    }
                    self.write(cluster, warp, lane, place, false, &bytes).map_err(|f| in_lane(f, lane))?;
                }
            }
            if load {
                warp.set(register, mask, &out)?;
            }
        }
        Ok(())
    }
}

/// Whether addresses of the space are 32-bit.
fn short(space: Space) -> bool {
    matches!(space, Space::Shared | Space::SharedCluster | Space::Local | Space::Param)
}

pub fn in_lane(fault: Fault, lane: usize) -> Fault {
    Fault { message: format!("{} (lane {lane})", fault.message), ..fault }
}

pub fn aligned(address: u64, bytes: u32) -> Result<()> {
    if bytes.is_power_of_two() && !address.is_multiple_of(bytes.into()) {
        return Fault::err(Kind::Misaligned, format!("{bytes} bytes at {address:#x}"));
    }
    Ok(())
}
