//! Issue of asynchronous copies, their groups and waits.

use super::Machine;
use super::address::{Place, aligned, in_lane};
use super::asynchronous::{Action, Issuer, Pending, Piece, Target};
use super::clock::Epoch;
use super::registers::lanes;
use super::shared::{Proxy, Who, swizzle_number};
use super::state::{Cluster, PendingCopy, Wait, Warp};
use super::step::Flow;
use crate::error::{Fault, Kind, Result};
use crate::program::{AsyncCopy, BulkOp, Op, Slot, StoreAsync};
use crate::ptx::ast::Space;
use crate::tensor_map::TensorMap;
use crate::tma::{
    ClusterAddress, CtaGroup, Direction, Mode, Options, ReduceOp, ReduceType, Tile, check_bulk, check_non_bulk,
    destinations,
};

/// One lane's value of an address operand.
fn address_of(warp: &Warp, lane: usize, (slot, offset): (Slot, i64)) -> Result<u64> {
    Ok(warp.get(slot, 1 << lane)?[lane].wrapping_add_signed(offset))
}

fn reduction(op: &str, kind: Option<&str>) -> Result<(ReduceOp, Option<ReduceType>)> {
    let operation = match op {
        "add" => ReduceOp::Add,
        "min" => ReduceOp::Min,
        "max" => ReduceOp::Max,
        "inc" => ReduceOp::Inc,
        "dec" => ReduceOp::Dec,
        "and" => ReduceOp::And,
        "or" => ReduceOp::Or,
        "xor" => ReduceOp::Xor,
        _ => return Fault::err(Kind::Malformed, format!("reduction {op}")),
    };
    let kind = match kind {
        Some("u32") => Some(ReduceType::U32),
        Some("s32") => Some(ReduceType::S32),
        Some("u64") => Some(ReduceType::U64),
        Some("s64") => Some(ReduceType::S64),
        Some("f16") => Some(ReduceType::F16),
        Some("bf16") => Some(ReduceType::Bf16),
        Some("f32") => Some(ReduceType::F32),
        Some("f64") => Some(ReduceType::F64),
        Some("b32") => Some(ReduceType::B32),
        Some("b64") => Some(ReduceType::B64),
        _ => None,
    };
    Ok((operation, kind))
}

impl Machine<'_> {
    fn tensor_map(&mut self, cluster: &Cluster, cta: usize, address: u64) -> Result<TensorMap> {
        let mut bytes = [0u8; 128];
        if !address.is_multiple_of(64) {
            return Fault::err(Kind::TensorMap, format!("tensor map at {address:#x}, not 64-byte aligned"));
        }
        match self.locate(cluster, cta, Space::Generic, address)? {
            Place::Param(offset) => {
                let Some(found) = self.launch.params.get(offset as usize..offset as usize + 128) else {
                    return Fault::err(Kind::TensorMap, format!("tensor map at parameter offset {offset:#x}"));
                };
                bytes.copy_from_slice(found);
            }
            Place::Global(address) => self.memory.read(address, &mut bytes)?,
            other => return Fault::err(Kind::TensorMap, format!("a tensor map in {other:?}")),
        }
        TensorMap::from_bytes(&bytes)
    }

    pub fn prefetch_map(&mut self, warp: &Warp, mask: u32, address: Slot, offset: i64) -> Result<()> {
        let _ = (warp.get(address, mask)?, offset);
        Ok(())
    }

    pub fn bulk(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, copy: &AsyncCopy) -> Result<()> {
        for lane in lanes(mask) {
            self.bulk_lane(cluster, warp, lane, copy).map_err(|f| in_lane(f, lane))?;
        }
        // What follows is not what the copies saw.
        warp.advance();
        Ok(())
    }

    fn bulk_lane(&mut self, cluster: &mut Cluster, warp: &mut Warp, lane: usize, copy: &AsyncCopy) -> Result<()> {
        let space = if copy.op == BulkOp::Store { Space::Shared } else { Space::SharedCluster };
        let near = address_of(warp, lane, copy.shared)? & 0xFFFF_FFFF;
        let near = self.locate(cluster, warp.cta, space, near)?;
        let (data_cta, offset) = near.shared()?;
        let map = match copy.coordinates.is_empty() {
            true => None,
            false => Some(self.tensor_map(cluster, warp.cta, address_of(warp, lane, (copy.map, 0))?)?),
        };
        let mut fill = [0u8; 16];
        let (pieces, bytes) = match &map {
            Some(map) => {
                let mut coordinates = Vec::with_capacity(5);
                for &slot in &copy.coordinates {
                    coordinates.push(warp.get(slot, 1 << lane)?[lane] as u32 as i32);
                }
                let direction = if copy.op == BulkOp::Store { Direction::Store } else { Direction::Load };
                let mode = if copy.mode == "tile" { Mode::Tile } else { Mode::Rows4 };
                let tile = Tile::new(map, direction, mode, &coordinates, offset, &Options::default())?;
                tile.fill(&mut fill);
                let mut pieces = Vec::with_capacity(tile.bytes() as usize / 16);
                tile.for_each(|piece| {
                    pieces.push(Piece { global: piece.global, shared: piece.shared, bytes: piece.bytes });
                    Ok(())
                })?;
                (pieces, tile.bytes())
            }
            None => {
                let bytes = warp.get(copy.bytes, 1 << lane)?[lane] as u32;
                let far = address_of(warp, lane, copy.global)?;
                check_bulk(offset.into(), far, bytes)?;
                let steps = (0..bytes).step_by(16);
                let piece = |at: u32| Piece { global: Some(far + u64::from(at)), shared: offset + at, bytes: 16 };
                (steps.map(piece).collect(), bytes)
            }
        };
        let reduce = match &copy.reduce {
            None => None,
            Some((op, kind)) => {
                let (op, kind) = reduction(op, Some(kind))?;
                let kind = match (&map, kind) {
                    (Some(map), _) => ReduceType::of_map(map.data_type)?,
                    (None, Some(kind)) => kind,
                    (None, None) => return Fault::err(Kind::Malformed, "a reduction without a type"),
                };
                op.check(kind, copy.op == BulkOp::Cluster)?;
                Some((op, kind))
            }
        };
        if copy.op == BulkOp::Store {
            let group = warp.bulk.entry(lane as u32).or_default().committed + 1;
            let epoch = Epoch::new(warp.bulk_agent, group);
            let id = self.issue_copy(cluster, warp, lane, epoch, Action::StoreRead { pieces, reduce });
            warp.bulk.entry(lane as u32).or_default().pending.push((group, id, true));
            return Ok(());
        }
        let barrier = address_of(warp, lane, copy.barrier)? & 0xFFFF_FFFF;
        let (barrier_cta, barrier_offset) = self.mbarrier_at(cluster, warp.cta, Space::SharedCluster, barrier)?;
        let mask = match copy.multicast {
            Some(slot) => Some(warp.get(slot, 1 << lane)?[lane] as u16),
            None => None,
        };
        let all = destinations(
            ClusterAddress { cta: data_cta as u32, offset },
            ClusterAddress { cta: barrier_cta as u32, offset: barrier_offset },
            mask,
            if copy.pair { CtaGroup::Two } else { CtaGroup::One },
            cluster.ctas.len() as u32,
        )?;
        let mut targets = Vec::with_capacity(all.len());
        for destination in all {
            let (cta, at) = (destination.mbarrier.cta as usize, destination.mbarrier.offset);
            self.knows_init(cluster, cta, at, warp, lane)?;
            let epoch = self.signal_epoch(cluster, cta, at)?;
            targets.push(Target { cta: destination.data.cta as usize, mbarrier: (cta, at), epoch });
        }
        let swizzle = map.as_ref().map_or(0, |map| swizzle_number(map.swizzle));
        let epoch = targets.first().map_or(Epoch::default(), |t| t.epoch);
        let action = match copy.op {
            BulkOp::Cluster => {
                let from = address_of(warp, lane, copy.global)?;
                let (from_cta, from) = self.locate(cluster, warp.cta, Space::Shared, from & 0xFFFF_FFFF)?.shared()?;
                if from_cta == data_cta {
                    return Fault::err(Kind::InvalidOperand, "a shared::cta to shared::cluster copy within one CTA");
                }
                Action::Cluster { from, target: targets[0], to: offset, bytes, reduce }
            }
            _ => Action::Load { pieces, fill, targets, bytes, swizzle },
        };
        self.issue_copy(cluster, warp, lane, epoch, action);
        Ok(())
    }

    /// `st.async` and `red.async` (PTX ISA 9.7.9.12, 9.7.13.7).
    pub fn store_async(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &StoreAsync) -> Result<()> {
        for lane in lanes(mask) {
            self.store_async_lane(cluster, warp, lane, op).map_err(|f| in_lane(f, lane))?;
        }
        warp.advance();
        Ok(())
    }

    fn store_async_lane(&mut self, cluster: &mut Cluster, warp: &Warp, lane: usize, op: &StoreAsync) -> Result<()> {
        let mut data = Vec::with_capacity(16);
        for &slot in &op.s {
            let value = warp.get(slot, 1 << lane)?[lane];
            data.extend_from_slice(&value.to_le_bytes()[..op.bytes as usize]);
        }
        let at = address_of(warp, lane, op.address)? & 0xFFFF_FFFF;
        let (cta, to) = self.locate(cluster, warp.cta, Space::SharedCluster, at)?.shared()?;
        let barrier = address_of(warp, lane, op.barrier)? & 0xFFFF_FFFF;
        let (barrier_cta, barrier) = self.mbarrier_at(cluster, warp.cta, Space::SharedCluster, barrier)?;
        aligned(to.into(), data.len() as u32)?;
        if cta != barrier_cta || cluster.ctas.len() < 2 || op.reduce.is_some() && cta == warp.cta {
            return Fault::err(
                Kind::InvalidOperand,
                format!("data for rank {cta} with an mbarrier of rank {barrier_cta}, from rank {}", warp.cta),
            );
        }
        let reduce = match &op.reduce {
            Some((name, kind)) => match reduction(name, Some(kind))? {
                (op, Some(kind)) => {
                    op.check(kind, true)?;
                    Some((op, kind))
                }
                _ => return Fault::err(Kind::Malformed, "a reduction without a type"),
            },
            None => None,
        };
        self.knows_init(cluster, cta, barrier, warp, lane)?;
        let epoch = self.signal_epoch(cluster, cta, barrier)?;
        let target = Target { cta, mbarrier: (cta, barrier), epoch };
        let action = Action::Deliver { data, to, target, reduce };
        self.issue_copy(cluster, warp, lane, epoch, action);
        Ok(())
    }

    /// An operation of this lane, to be completed at a random moment; its number.
    pub fn issue_copy(&mut self, cluster: &mut Cluster, warp: &Warp, lane: usize, epoch: Epoch, action: Action) -> u64 {
        self.operations += 1;
        let pc = warp.groups.iter().find(|g| g.mask >> lane & 1 == 1).map_or(0, |g| g.pc);
        cluster.pending.push(Pending {
            id: self.operations,
            due: self.time + self.random.delay(),
            issuer: Issuer { cta: warp.cta, warp: warp.index, lane: lane as u32, pc },
            knows: warp.behind(1 << lane),
            epoch,
            action,
        });
        self.operations
    }

    pub fn bulk_commit(&mut self, warp: &mut Warp, mask: u32) {
        for lane in lanes(mask) {
            warp.bulk.entry(lane as u32).or_default().committed += 1;
        }
    }

    pub fn bulk_wait(&mut self, warp: &mut Warp, mask: u32, pending: u32, read: bool) -> Result<Flow> {
        let mut covered = 0;
        for lane in lanes(mask) {
            let Some(groups) = warp.bulk.get(&(lane as u32)) else { continue };
            let last = groups.committed.saturating_sub(pending);
            if groups.pending.iter().any(|&(group, _, reading)| group <= last && (reading || !read)) {
                return Ok(Flow::Wait(Wait::Bulk { pending, read }));
            }
            covered = covered.max(last);
        }
        warp.raise(mask, warp.bulk_agent, covered);
        Ok(Flow::Next)
    }

    /// Non-bulk copies (PTX ISA, "cp.async"): their data arrives when the lane waits for it.
    pub fn copy_async(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        match op {
            Op::CopyAsync { bytes, shared, global, size } => {
                for lane in lanes(mask) {
                    let size = match size {
                        Some(slot) => Some(warp.get(*slot, 1 << lane)?[lane] as u32),
                        None => None,
                    };
                    let to = address_of(warp, lane, *shared)? & 0xFFFF_FFFF;
                    let from = address_of(warp, lane, *global)?;
                    let read = check_non_bulk(to, from, *bytes, size, false, false)? as usize;
                    let mut data = [0u8; 16];
                    if read > 0 {
                        let place = self.locate(cluster, warp.cta, Space::Global, from)?;
                        self.read(cluster, warp, lane as u32, place, false, &mut data[..read])?;
                    }
                    let (cta, offset) = self.locate(cluster, warp.cta, Space::Shared, to)?.shared()?;
                    cluster.ctas[cta].shared.check(offset, *bytes)?;
                    // Until then whoever reads the bytes finds nothing.
                    cluster.ctas[cta].shared.mark_written(offset, *bytes, false);
                    let (group, bytes) = (warp.copy_groups[lane] + 1, *bytes as usize);
                    warp.copies.push(PendingCopy { lane, group, offset, data, bytes });
                }
            }
            Op::CopyAsyncCommit => lanes(mask).for_each(|lane| warp.copy_groups[lane] += 1),
            Op::CopyAsyncWait { pending } => {
                let groups = warp.copy_groups;
                let done = |copy: &PendingCopy| {
                    mask >> copy.lane & 1 == 1
                        && match pending {
                            Some(pending) => copy.group <= groups[copy.lane].saturating_sub(*pending),
                            None => true,
                        }
                };
                let (arrived, rest) = std::mem::take(&mut warp.copies).into_iter().partition(done);
                warp.copies = rest;
                let arrived: Vec<PendingCopy> = arrived;
                for copy in arrived {
                    self.copy_arrived(cluster, warp, &copy)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The copies belong to the generic proxy, yet compilers hand them to wgmma without a proxy fence, and hardware obeys:
    /// they are recorded as if they needed none.
    fn copy_arrived(&mut self, cluster: &mut Cluster, warp: &Warp, copy: &PendingCopy) -> Result<()> {
        let who = Who { proxy: Proxy::Async, ..warp.who(copy.lane as u32, false) };
        cluster.ctas[warp.cta].store(&cluster.agents, copy.offset, &copy.data[..copy.bytes], true, who)
    }
}
