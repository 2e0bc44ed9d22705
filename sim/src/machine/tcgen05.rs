//! tcgen05: allocation, loads and stores of Tensor Memory; products, copies and commits, which complete in the order of
//! issue of their warp at random later moments.

use super::Machine;
use super::asynchronous::Issuer;
use super::clock::{Epoch, Knowledge};
use super::registers::lanes;
use super::state::{Cluster, Wait, Warp};
use super::step::Flow;
use super::tensor_memory::Memories;
use crate::error::{Fault, Kind, Result};
use crate::program::{Multiply, Slot, TensorOp};
use crate::ptx::ast::Space;
use crate::tcgen05::{Copy, Instruction, Operand, Operands, Operation, Options, commit_targets, decode_descriptor};
use crate::tma::{ClusterAddress, CtaGroup};
use crate::tmem::{LANES, TensorMemory};

/// An operation that a warp has issued.
#[derive(Debug)]
pub struct Issue {
    pub due: u64,
    pub issuer: Issuer,
    pub knows: Knowledge,
    pub epoch: Epoch,
    pub operation: Option<Operation>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Multiply {
        instruction: Instruction,
        d: u32,
        a: Operand,
        b: u64,
        scales: Option<(u32, u32)>,
        enable: bool,
        scale_d: Option<u32>,
        disabled: Vec<u32>,
    },
    Copy {
        copy: Copy,
        address: u32,
        descriptor: u64,
        pair: bool,
    },
    Commit {
        targets: Vec<(usize, u32)>,
    },
}

fn operand(warp: &Warp, lane: usize, slot: Slot) -> Result<u64> {
    Ok(warp.get(slot, 1 << lane)?[lane])
}

fn address(warp: &Warp, lane: usize, (slot, offset): (Slot, i64)) -> Result<u32> {
    Ok(operand(warp, lane, slot)?.wrapping_add_signed(offset) as u32)
}

impl Machine<'_> {
    pub fn tensor(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &TensorOp) -> Result<Flow> {
        if matches!(op, TensorOp::Multiply(_) | TensorOp::Copy { .. } | TensorOp::Commit { .. }) {
            for lane in lanes(mask) {
                self.issue_tensor(cluster, warp, lane, op)?;
            }
            return Ok(Flow::Next);
        }
        if let Some(wait) = self.together(warp, mask, u32::MAX) {
            return Ok(wait);
        }
        if mask != u32::MAX {
            return Fault::err(Kind::Divergence, "a tcgen05 instruction of the whole warp with lanes missing");
        }
        let cta = warp.cta;
        match op {
            TensorOp::Allocate { pair, address: to, columns } => {
                let columns = warp.uniform(*columns, mask, "the number of columns")? as u32;
                let found = match pair {
                    false => cluster.ctas[cta].tensor.memory.alloc(cta as u32, columns)?,
                    true => self.allocate_pair(cluster, cta, columns)?,
                };
                let Some(column) = found else { return Ok(Flow::Wait(Wait::Columns(columns))) };
                cluster.changes += 1;
                let to = u64::from(address(warp, 0, *to)?);
                let place = self.locate(cluster, cta, Space::Shared, to)?;
                self.write(cluster, warp, 0, place, false, &column.to_le_bytes())?;
            }
            TensorOp::Deallocate { address, columns, .. } => {
                let address = warp.uniform(*address, mask, "the address")? as u32;
                let columns = warp.uniform(*columns, mask, "the number of columns")? as u32;
                let knows = &warp.knows.all;
                let agents = &cluster.agents;
                let state = &mut cluster.ctas[cta].tensor;
                let epoch = Epoch::new(warp.access_agent, warp.access_count);
                for lane in 0..LANES {
                    state.note(lane, address & 0xFFFF, columns, true, epoch, &|e, _| knows.covers(e), agents)?;
                }
                state.memory.dealloc(cta as u32, address, columns)?;
                cluster.changes += 1;
            }
            TensorOp::Relinquish => cluster.ctas[cta].tensor.memory.relinquish(cta as u32),
            TensorOp::Load { access, d, address: at } => {
                let at = (warp.uniform(at.0, mask, "the address")? as u32).wrapping_add(at.1 as u32);
                let rank = warp.index % 4;
                warp.access_count += 1;
                let (epoch, knows) = (Epoch::new(warp.access_agent, warp.access_count), &warp.knows.all);
                // Loads of one warp do not disturb each other.
                let ordered = |e: Epoch, _| knows.covers(e);
                let agents = &cluster.agents;
                let state = &mut cluster.ctas[cta].tensor;
                let values = state.memory.load(cta as u32, access, at, rank)?;
                if values.len() != d.len() {
                    return Fault::err(
                        Kind::InvalidOperand,
                        format!("tcgen05.ld into {} registers, not {}", d.len(), values.len()),
                    );
                }
                access.rows(at, rank, |lane, column, count| {
                    state.note(lane, column, count, false, epoch, &ordered, agents)
                })?;
                for (value, &slot) in values.iter().zip(d) {
                    warp.set(slot, mask, &value.map(u64::from))?;
                    let at = slot as usize;
                    (warp.busy[at], warp.valid[at]) = (2, 0);
                    warp.busy_list.push(slot);
                }
            }
            TensorOp::Store { access, s, address: at } => {
                let at = (warp.uniform(at.0, mask, "the address")? as u32).wrapping_add(at.1 as u32);
                let rank = warp.index % 4;
                let mut values = Vec::with_capacity(s.len());
                for &slot in s {
                    values.push(warp.get(slot, mask)?.map(|v| v as u32));
                }
                warp.access_count += 1;
                let (epoch, knows) = (Epoch::new(warp.access_agent, warp.access_count), &warp.knows.all);
                let agents = &cluster.agents;
                let state = &mut cluster.ctas[cta].tensor;
                access.rows(at, rank, |lane, column, count| {
                    state.note(lane, column, count, true, epoch, &|e, _| knows.covers(e), agents)
                })?;
                state.memory.store(cta as u32, access, at, rank, &values)?;
            }
            _ => {}
        }
        self.progress = self.time;
        Ok(Flow::Next)
    }

    /// `tcgen05.wait`: the warp's loads, or its stores, are done. Both are counted as one agent.
    pub fn tensor_wait(&mut self, warp: &mut Warp, load: bool) {
        warp.raise(u32::MAX, warp.access_agent, warp.access_count);
        if load {
            for slot in std::mem::take(&mut warp.busy_list) {
                (warp.busy[slot as usize], warp.valid[slot as usize]) = (0, u32::MAX);
            }
        }
    }

    fn allocate_pair(&mut self, cluster: &mut Cluster, cta: usize, columns: u32) -> Result<Option<u32>> {
        let even = cta & !1;
        if even + 1 >= cluster.ctas.len() {
            return Fault::err(Kind::Tmem, "cta_group::2 in a CTA without a peer");
        }
        let at = cluster.pair_requests.iter().position(|r| r.0 == even);
        let at = at.unwrap_or_else(|| {
            cluster.pair_requests.push((even, columns, [false; 2], None));
            cluster.pair_requests.len() - 1
        });
        let request = &mut cluster.pair_requests[at];
        if let Some(column) = request.3 {
            // The second of the pair takes the result.
            let taken = request.2[cta & 1];
            if taken {
                cluster.pair_requests.swap_remove(at);
            }
            return Ok(taken.then_some(column));
        }
        if request.1 != columns {
            return Fault::err(Kind::Tmem, format!("a pair allocates {} and {columns} columns", request.1));
        }
        request.2[cta & 1] = true;
        if request.2 != [true; 2] {
            return Ok(None);
        }
        let (low, high) = cluster.ctas.split_at_mut(even + 1);
        let memories = [&mut low[even].tensor.memory, &mut high[0].tensor.memory];
        let found = TensorMemory::alloc_pair(memories, [even as u32, even as u32 + 1], columns)?;
        if found.is_some() {
            let request = &mut cluster.pair_requests[at];
            request.3 = found;
            request.2[cta & 1] = false;
        }
        Ok(found)
    }

    fn issue_tensor(&mut self, cluster: &mut Cluster, warp: &mut Warp, lane: usize, op: &TensorOp) -> Result<()> {
        let (operation, action) = match op {
            TensorOp::Multiply(multiply) => self.multiply_tensor(warp, lane, multiply)?,
            TensorOp::Copy { pair, copy, address: to, descriptor } => {
                let four_rows = copy.shape == crate::tcgen05::CopyShape::L4B256;
                let (address, descriptor) = (address(warp, lane, *to)?, operand(warp, lane, *descriptor)?);
                (Some(Operation::Copy { four_rows }), Action::Copy { copy: *copy, address, descriptor, pair: *pair })
            }
            TensorOp::Commit { pair: _, barrier, mask } => {
                let at = u64::from(address(warp, lane, *barrier)?);
                let place = self.locate(cluster, warp.cta, Space::SharedCluster, at)?;
                let (cta, offset) = place.shared()?;
                let mask = match mask {
                    Some(slot) => Some(operand(warp, lane, *slot)? as u16),
                    None => None,
                };
                let all = commit_targets(ClusterAddress { cta: cta as u32, offset }, mask, cluster.ctas.len() as u32)?;
                let mut targets = Vec::with_capacity(all.len());
                for target in all {
                    self.knows_init(cluster, target.cta as usize, target.offset, warp, lane)?;
                    self.signal_epoch(cluster, target.cta as usize, target.offset)?;
                    targets.push((target.cta as usize, target.offset));
                }
                (None, Action::Commit { targets })
            }
            _ => return Ok(()),
        };
        warp.tensor_count += 1;
        let pc = warp.groups.iter().find(|g| g.mask >> lane & 1 == 1).map_or(0, |g| g.pc);
        let issuer = Issuer { cta: warp.cta, warp: warp.index, lane: lane as u32, pc };
        let (number, due) = (warp.tensor_count, self.time + self.random.delay());
        let epoch = Epoch::new(warp.tensor_agent, number);
        let queue = warp.cta * self.launch.warps() as usize + warp.index as usize;
        let knows = warp.behind(1 << lane);
        cluster.tensor_operations[queue].push(operation);
        cluster.tensor[queue].push_back(Issue { due, issuer, knows, epoch, operation, action });
        warp.advance();
        Ok(())
    }

    fn multiply_tensor(&mut self, warp: &Warp, lane: usize, m: &Multiply) -> Result<(Option<Operation>, Action)> {
        let bits = operand(warp, lane, m.descriptor)? as u32;
        let group = if m.pair { CtaGroup::Two } else { CtaGroup::One };
        let options = Options::default();
        let instruction = Instruction::decode(bits, m.kind, group, m.weight_stationary, m.per_row, &options)?;
        let a = match m.a {
            Ok(at) => Operand::Tmem(address(warp, lane, at)?),
            Err(slot) => Operand::Shared(decode_descriptor(operand(warp, lane, slot)?)?),
        };
        let scales = match m.scales {
            Some([a, b]) => Some((address(warp, lane, a)?, address(warp, lane, b)?)),
            None => None,
        };
        let enable = match m.enable {
            Ok(p) => warp.predicate(p, 1 << lane)? >> lane & 1 == 1,
            Err(value) => value,
        };
        let disabled =
            m.disabled.iter().map(|&slot| operand(warp, lane, slot).map(|v| v as u32)).collect::<Result<_>>()?;
        let (d, b) = (address(warp, lane, m.d)?, operand(warp, lane, m.b)?);
        let operation = Operation::Mma { d, shape: (instruction.m, instruction.n) };
        Ok((Some(operation), Action::Multiply { instruction, d, a, b, scales, enable, scale_d: m.scale_d, disabled }))
    }

    /// Ends the operations that are due.
    pub fn complete_tensor(&mut self, cluster: &mut Cluster) -> Result<()> {
        for queue in 0..cluster.tensor.len() {
            while let Some(front) = cluster.tensor[queue].front()
                && front.due <= self.time
            {
                let Some(issue) = cluster.tensor[queue].pop_front() else { break };
                let (id, issuer) = (cluster.ctas[issue.issuer.cta].id, issue.issuer);
                let operations = std::mem::take(&mut cluster.tensor_operations[queue]);
                self.complete_issue(cluster, &issue, &operations)
                    .map_err(|f| f.at(|| self.place_of(id, issuer.warp, issuer.pc)))?;
                cluster.tensor_operations[queue] = operations;
                cluster.changes += 1;
                self.progress = self.time;
            }
        }
        Ok(())
    }

    fn complete_issue(&mut self, cluster: &mut Cluster, issue: &Issue, operations: &[Option<Operation>]) -> Result<()> {
        let cta = issue.issuer.cta;
        let options = Options::default();
        match &issue.action {
            Action::Commit { targets } => {
                for &(cta, offset) in targets {
                    self.arrive_asynchronously(cluster, cta, offset, issue.epoch)?;
                }
                Ok(())
            }
            Action::Copy { copy, address, descriptor, pair } => {
                let descriptor = decode_descriptor(*descriptor)?;
                let mut memories = Memories::new(cluster, issue, *pair, Some(descriptor.swizzle), operations)?;
                copy.execute(*address, descriptor, 1 + usize::from(*pair), &options, &mut memories)
            }
            Action::Multiply { instruction, d, a, b, scales, enable, scale_d, disabled } => {
                let b = decode_descriptor(*b)?;
                let swizzle = match a {
                    Operand::Shared(a) if a.swizzle != b.swizzle => None,
                    _ => Some(b.swizzle),
                };
                let operands = Operands {
                    d: *d,
                    a: *a,
                    b,
                    scales: *scales,
                    enable_d: *enable,
                    scale_d: *scale_d,
                    disabled_lanes: disabled,
                };
                let pair = instruction.group == CtaGroup::Two;
                if pair && cluster.ctas.get(cta ^ 1).is_none_or(|peer| peer.exited) {
                    return Fault::err(Kind::Exit, "cta_group::2 with a peer that is missing or has exited");
                }
                let mut memories = Memories::new(cluster, issue, pair, swizzle, operations)?;
                instruction.execute(&operands, &options, &mut memories)?;
                self.counters.of(issue.issuer.warp).matrix_flops +=
                    2 * u64::from(instruction.m) * u64::from(instruction.n) * u64::from(instruction.k());
                Ok(())
            }
        }
    }
}
