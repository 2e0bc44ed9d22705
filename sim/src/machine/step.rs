//! One instruction of one group of lanes.

use super::Machine;
use super::registers::lanes;
use super::state::{Cluster, Group, Wait, Warp};
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op, insert, lop3};
use crate::ptx::Special;

/// How a group goes on.
pub enum Flow {
    Next,
    /// Try the instruction again when something has changed.
    Wait(Wait),
}

impl Group {
    /// Waits for lanes of its own warp, which wake it themselves.
    pub fn stuck(&self) -> bool {
        matches!(self.wait, Some(Wait::Lanes(_)))
    }
}

impl Machine<'_> {
    pub fn step(&mut self, cluster: &mut Cluster, warp: &mut Warp, group: usize) -> Result<()> {
        let launch = self.launch;
        let pc = warp.groups[group].pc;
        let inst = &launch.kernel.code[pc as usize];
        let whole = warp.groups[group].mask;
        let mask = match inst.guard {
            Some((p, negate)) => whole & warp.predicate((p, negate), whole)?,
            None => whole,
        };
        if mask == 0 {
            self.go_on(warp, group, pc + 1);
            return Ok(());
        }
        self.counters.reached[pc as usize] = true;
        match &inst.op {
            Op::Branch { target } => {
                if mask == whole {
                    self.go_on(warp, group, *target);
                } else {
                    let taken = Group { pc: *target, mask, wait: None, tried: 0, token: None };
                    warp.groups[group].mask = whole & !mask;
                    warp.groups.push(taken);
                    self.go_on(warp, group, pc + 1);
                    let last = warp.groups.len() - 1;
                    self.meet(warp, last);
                }
                return Ok(());
            }
            Op::Exit => return self.exit(cluster, warp, group, mask),
            _ => {}
        }
        // A value written by part of the lanes is fine; what the whole warp must execute together is checked there.
        match self.execute(cluster, warp, group, mask, &inst.op)? {
            Flow::Next => self.go_on(warp, group, pc + 1),
            Flow::Wait(wait) => {
                let first = warp.groups[group].wait.is_none();
                self.count_wait(warp, first, &wait);
                let group = &mut warp.groups[group];
                (group.wait, group.tried) = (Some(wait), cluster.changes);
            }
        }
        Ok(())
    }

    /// Counts a wait once, however often it is tried.
    fn count_wait(&mut self, warp: &Warp, first: bool, wait: &Wait) {
        let work = self.count(warp);
        match wait {
            Wait::Lanes(_) => {}
            Wait::Mbarrier { .. } => work.mbarrier_waits += u64::from(first),
            Wait::Barrier { .. } | Wait::Cluster => work.barrier_waits += u64::from(first),
            _ => work.other_waits += u64::from(first),
        }
    }

    fn go_on(&mut self, warp: &mut Warp, group: usize, pc: u32) {
        let g = &mut warp.groups[group];
        (g.pc, g.wait, g.token) = (pc, None, None);
        if warp.groups.len() > 1 {
            self.meet(warp, group);
        }
    }

    /// Joins a group with another at the same instruction.
    fn meet(&mut self, warp: &mut Warp, group: usize) {
        let (pc, mask) = (warp.groups[group].pc, warp.groups[group].mask);
        let other = (0..warp.groups.len()).find(|&i| {
            i != group && warp.groups[i].pc == pc && warp.groups[i].token.is_none() && !warp.groups[i].elsewhere()
        });
        if let Some(other) = other {
            let joined = &mut warp.groups[other];
            joined.mask |= mask;
            joined.wait = None;
            warp.groups.swap_remove(group);
        }
    }

    fn exit(&mut self, cluster: &mut Cluster, warp: &mut Warp, group: usize, mask: u32) -> Result<()> {
        if !warp.busy_list.is_empty() {
            return Fault::err(Kind::Exit, "a warp exits with wgmma groups that it has not waited for");
        }
        if lanes(mask).any(|lane| warp.bulk.get(&(lane as u32)).is_some_and(|b| b.pending.iter().any(|p| p.2))) {
            return Fault::err(Kind::Exit, "a thread exits while its bulk copies still read shared memory");
        }
        warp.live &= !mask;
        let g = &mut warp.groups[group];
        g.mask &= !mask;
        if g.mask == 0 {
            warp.groups.swap_remove(group);
        } else {
            self.go_on(warp, group, warp.groups[group].pc + 1);
        }
        for other in warp.groups.iter_mut().filter(|g| g.stuck()) {
            other.wait = None;
        }
        if warp.live == 0 {
            self.warp_ended(cluster, warp)?;
        }
        self.progress = self.time;
        Ok(())
    }

    /// Whether all live lanes that `wanted` names are in this group; otherwise it has to wait for them.
    pub fn together(&self, warp: &Warp, mask: u32, wanted: u32) -> Option<Flow> {
        (warp.live & wanted & !mask != 0).then_some(Flow::Wait(Wait::Lanes(wanted & warp.live)))
    }

    fn execute(&mut self, cluster: &mut Cluster, warp: &mut Warp, group: usize, mask: u32, op: &Op) -> Result<Flow> {
        let mut out: Lanes = [0; 32];
        match op {
            Op::Map { f, d, s, count } => {
                let mut valid = u32::MAX;
                for &source in &s[..usize::from(*count)] {
                    valid &= warp.having(source, mask)?;
                }
                let [a, b, c] = s.map(|slot| &warp.registers[slot as usize]);
                f(&mut out, a, b, c);
                warp.set_some(*d, mask, &out, valid)?;
            }
            Op::Move { d, s } => {
                let (valid, value) = (warp.having(*s, mask)?, warp.registers[*s as usize]);
                warp.set_some(*d, mask, &value, valid)?;
            }
            Op::Move128 { d, s } => {
                for half in 0..2 {
                    let value = *warp.get(s + half, mask)?;
                    warp.set(d + half, mask, &value)?;
                }
            }
            Op::Varying { d, special } => {
                let value = match special {
                    Special::Clock => self.time & 0xFFFF_FFFF,
                    _ => self.time,
                };
                warp.set(*d, mask, &[value; 32])?;
            }
            Op::Select { d, a, b, p, negate } => {
                let (choice, known) = warp.predicate_having((*p, *negate));
                let valid = known & (choice & warp.having(*a, mask)? | !choice & warp.having(*b, mask)?);
                let (a, b) = (&warp.registers[*a as usize], &warp.registers[*b as usize]);
                for lane in 0..32 {
                    out[lane] = if choice >> lane & 1 == 1 { a[lane] } else { b[lane] };
                }
                warp.set_some(*d, mask, &out, valid)?;
            }
            Op::Compare { f, p, q, a, b, combine } => {
                let mut valid = warp.having(*a, mask)? & warp.having(*b, mask)?;
                let mut result = f(&warp.registers[*a as usize], &warp.registers[*b as usize]);
                let mut other = !result;
                if let Some((op, c, negate)) = combine {
                    let (c, known) = warp.predicate_having((*c, *negate));
                    valid = op.decided((result, valid), (c, known));
                    (result, other) = (op.apply(result, c), op.apply(other, c));
                }
                for (p, value) in [(p, result), (q, other)] {
                    if let Some(p) = p {
                        warp.set_predicate_some(*p, mask, value, valid);
                    }
                }
            }
            Op::Logic { op, d, a, b } => {
                let (a, b) = (warp.predicate_having(*a), warp.predicate_having(*b));
                warp.set_predicate_some(*d, mask, op.apply(a.0, b.0), op.decided(a, b));
            }
            Op::SetPredicate { d, s } => {
                let (value, valid) = match s {
                    Ok(p) => warp.predicate_having(*p),
                    Err(value) => (u32::from(*value).wrapping_neg(), u32::MAX),
                };
                warp.set_predicate_some(*d, mask, value, valid);
            }
            Op::ConvertValue { c, d, a, b } => {
                let valid = warp.having(*a, mask)? & warp.having(*b, mask)?;
                let (a, b) = (&warp.registers[*a as usize], &warp.registers[*b as usize]);
                for lane in lanes(mask) {
                    out[lane] = c.apply(a[lane], b[lane]);
                }
                warp.set_some(*d, mask, &out, valid)?;
            }
            Op::Lop3 { d, s, table } => {
                let valid = warp.having(s[0], mask)? & warp.having(s[1], mask)? & warp.having(s[2], mask)?;
                let [a, b, c] = s.map(|slot| &warp.registers[slot as usize]);
                for lane in 0..32 {
                    out[lane] = lop3(a[lane] as u32, b[lane] as u32, c[lane] as u32, *table).into();
                }
                warp.set_some(*d, mask, &out, valid)?;
            }
            Op::Insert { d, a, b, position, length, bits } => {
                let [a, b] = [warp.get(*a, mask)?, warp.get(*b, mask)?];
                let [p, l] = [warp.get(*position, mask)?, warp.get(*length, mask)?];
                for lane in 0..32 {
                    out[lane] = insert(a[lane], b[lane], p[lane], l[lane], *bits);
                }
                warp.set(*d, mask, &out)?;
            }
            Op::Split { d, s, bits } if *bits == 64 => {
                for (half, d) in d.iter().enumerate() {
                    let value = *warp.get(s + half as u32, mask)?;
                    if let Some(d) = d {
                        warp.set(*d, mask, &value)?;
                    }
                }
            }
            Op::Split { d, s, bits } => {
                let (valid, value) = (warp.having(*s, mask)?, warp.registers[*s as usize]);
                for (part, d) in d.iter().enumerate() {
                    let Some(d) = d else { continue };
                    for lane in 0..32 {
                        out[lane] = value[lane] >> (*bits * part as u32) & u64::MAX >> (64 - bits);
                    }
                    warp.set_some(*d, mask, &out, valid)?;
                }
            }
            Op::Join { d, s, bits } if *bits == 64 => {
                for (half, s) in s.iter().enumerate() {
                    let value = *warp.get(*s, mask)?;
                    warp.set(d + half as u32, mask, &value)?;
                }
            }
            Op::Join { d, s, bits } => {
                let mut valid = u32::MAX;
                for (part, s) in s.iter().enumerate() {
                    valid &= warp.having(*s, mask)?;
                    let value = &warp.registers[*s as usize];
                    for lane in 0..32 {
                        out[lane] |= (value[lane] & u64::MAX >> (64 - bits)) << (*bits * part as u32);
                    }
                }
                warp.set_some(*d, mask, &out, valid)?;
            }
            Op::Nop | Op::GridWait => {}
            Op::Omitted { done } => {
                self.counters.omitted = true;
                if let Some(done) = done {
                    warp.set_predicate(*done, mask, u32::MAX);
                }
            }
            Op::Trap => return Fault::err(Kind::Trap, "the program traps"),
            Op::Load { .. } | Op::Store { .. } => self.memory_access(cluster, warp, mask, op)?,
            Op::Convert { .. } | Op::MapRank { .. } | Op::GetRank { .. } => {
                self.convert_address(cluster, warp, mask, op)?;
            }
            Op::LoadMatrix { .. } | Op::StoreMatrix { .. } => {
                if let Some(wait) = self.together(warp, mask, u32::MAX) {
                    return Ok(wait);
                }
                self.matrix_access(cluster, warp, mask, op)?;
            }
            Op::Atomic(op) => self.atomic(cluster, warp, mask, op)?,
            Op::Barrier { .. } | Op::ClusterArrive { .. } | Op::ClusterWait | Op::SetMaxRegisters { .. } => {
                return self.barrier(cluster, warp, group, mask, op);
            }
            Op::Mbarrier { op, space, address, offset } => {
                return self.mbarrier(cluster, warp, mask, op, *space, (*address, *offset));
            }
            Op::Fence { proxy, any } => {
                if proxy.is_some() || *any {
                    warp.fence(mask);
                }
            }
            Op::FenceMbarrierInit => {}
            Op::WarpSync { .. }
            | Op::Shuffle { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Reduce { .. }
            | Op::Elect { .. }
            | Op::ActiveMask { .. } => return self.exchange(warp, mask, op),
            Op::Bulk(copy) => self.bulk(cluster, warp, mask, copy)?,
            Op::StoreAsync(store) => self.store_async(cluster, warp, mask, store)?,
            Op::BulkCommit => self.bulk_commit(warp, mask),
            Op::BulkWait { pending, read } => return self.bulk_wait(warp, mask, *pending, *read),
            Op::CopyAsync { .. } | Op::CopyAsyncCommit | Op::CopyAsyncWait { .. } => {
                self.copy_async(cluster, warp, mask, op)?;
            }
            Op::PrefetchMap { address, offset } => self.prefetch_map(warp, mask, *address, *offset)?,
            Op::TryCancel { .. } | Op::IsCanceled { .. } | Op::FirstCtaid { .. } => {
                self.launch_control(cluster, warp, mask, op)?;
            }
            Op::Tensor(op) => return self.tensor(cluster, warp, mask, op),
            Op::TensorWait { load } => {
                if let Some(wait) = self.together(warp, mask, u32::MAX) {
                    return Ok(wait);
                }
                self.tensor_wait(warp, *load);
            }
            Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => {
                return self.wgmma(cluster, warp, group, mask, op);
            }
            Op::Branch { .. } | Op::Exit => {}
        }
        Ok(Flow::Next)
    }
}

impl Group {
    /// Waits for something that lanes which join now have not asked for.
    fn elsewhere(&self) -> bool {
        self.wait.is_some() && !self.stuck()
    }
}
