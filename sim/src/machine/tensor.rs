//! wgmma: issue by the four warps of a warpgroup, completion in order at a random later moment.

use super::Machine;
use super::clock::{Epoch, Knowledge};
use super::shared::{Memo, Proxy, Shared, Who, swizzle_number};
use super::state::{Cluster, Issued, Wait, Warp};
use super::step::Flow;
use crate::error::{Fault, Kind, Result};
use crate::matrix::{Element, Major, SharedRead};
use crate::program::{Op, Wgmma, WgmmaA};
use crate::wgmma::{AFragment, Accumulator, Instruction, OperandA, Tile, decode_descriptor};

fn element(name: &str) -> Result<Element> {
    Ok(match name {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "s8" => Element::S8,
        "u8" => Element::U8,
        _ => return Fault::err(Kind::Unsupported, format!("wgmma of {name}")),
    })
}

fn instruction(op: &Wgmma) -> Result<Instruction> {
    let d = match op.types[0].as_str() {
        "f32" => Accumulator::F32,
        "f16" => Accumulator::F16,
        "s32" => Accumulator::S32,
        other => return Fault::err(Kind::Unsupported, format!("wgmma into {other}")),
    };
    let major = |transposed: bool| if transposed { Major::Mn } else { Major::K };
    let found = Instruction {
        n: op.n,
        d,
        a: element(&op.types[1])?,
        b: element(&op.types[2])?,
        negate_a: op.negate[0],
        negate_b: op.negate[1],
        major_a: major(op.transpose[0]),
        major_b: major(op.transpose[1]),
        satfinite: false,
    };
    found.check()?;
    if found.k() != op.k || found.accumulator_registers() as usize != op.d.len() {
        return Fault::err(
            Kind::InvalidOperand,
            format!(
                "wgmma with k = {} and {} accumulators: {} and {} are needed",
                op.k,
                op.d.len(),
                found.k(),
                found.accumulator_registers()
            ),
        );
    }
    Ok(found)
}

impl Machine<'_> {
    pub fn wgmma(&mut self, cluster: &mut Cluster, warp: &mut Warp, group: usize, mask: u32, op: &Op) -> Result<Flow> {
        if let Some(flow) = self.together(warp, mask, u32::MAX) {
            return Ok(flow);
        }
        let index = (warp.index / 4) as usize;
        if mask != u32::MAX || 4 * index as u32 + 4 > self.launch.warps() {
            return Fault::err(Kind::Divergence, "wgmma by a warp or warpgroup that is not whole");
        }
        match op {
            Op::WgmmaFence => warp.fenced_at = Some(warp.instructions),
            Op::WgmmaCommit => {
                warp.wgmma_group += 1;
                warp.wgmma_open = false;
            }
            Op::WgmmaWait { pending } => {
                let last = warp.wgmma_group.saturating_sub(*pending);
                let warpgroup = &cluster.ctas[warp.cta].warpgroups[index];
                if warpgroup.queue.iter().any(|issued| issued.group <= last) {
                    return Ok(Flow::Wait(Wait::Wgmma { pending: *pending }));
                }
                let agent = warpgroup.agent;
                warp.raise(mask, agent, last);
                let (busy, valid) = (&mut warp.busy, &mut warp.valid);
                warp.busy_list.retain(|&slot| {
                    let free = busy[slot as usize] / 2 <= last;
                    if free {
                        (busy[slot as usize], valid[slot as usize]) = (0, u32::MAX);
                    }
                    !free
                });
            }
            Op::Wgmma(op) => self.issue(cluster, warp, group, mask, op)?,
            _ => {}
        }
        Ok(Flow::Next)
    }

    fn issue(&mut self, cluster: &mut Cluster, warp: &mut Warp, group: usize, mask: u32, op: &Wgmma) -> Result<()> {
        let Some(fenced_at) = warp.fenced_at else {
            return Fault::err(Kind::NotWaited, "no wgmma.fence before the first wgmma.mma_async");
        };
        let scale_d = match op.scale_d {
            Err(value) => value,
            Ok(p) => match warp.predicate(p, mask)? {
                0 => false,
                u32::MAX => true,
                _ => return Fault::err(Kind::Divergence, "scale-d differs among lanes"),
            },
        };
        let a = match &op.a {
            WgmmaA::Descriptor(slot) => warp.uniform(*slot, mask, "the descriptor of A")?,
            WgmmaA::Registers(registers) => {
                for &slot in registers {
                    let at = slot as usize;
                    if warp.busy[at] & 1 == 1 || warp.busy[at] == 0 {
                        warp.check(slot, mask)?;
                    }
                    if warp.stamps[at].get() > fenced_at {
                        return unfenced("A");
                    }
                }
                0
            }
        };
        let b = warp.uniform(op.b, mask, "the descriptor of B")?;
        let number = warp.wgmma_group + 1;
        for &slot in &op.d {
            let at = slot as usize;
            if warp.busy[at] != 0 && warp.busy[at] & 1 == 0 {
                return Fault::err(Kind::NotWaited, "an accumulator is still the A operand of an earlier wgmma");
            }
            if warp.busy[at] == 0 {
                if scale_d {
                    warp.check(slot, mask)?;
                }
                // Even one that is only overwritten: what reads it before may not have done so yet.
                if warp.stamps[at].get() > fenced_at {
                    return unfenced("the accumulator");
                }
            }
        }
        let mut hold = |slot: u32, accumulator: u32| {
            let at = slot as usize;
            if warp.busy[at] == 0 {
                warp.busy_list.push(slot);
            }
            warp.busy[at] = 2 * number + accumulator;
            warp.valid[at] = 0;
        };
        op.d.iter().for_each(|&slot| hold(slot, 1));
        if let WgmmaA::Registers(registers) = &op.a {
            registers.iter().for_each(|&slot| hold(slot, 0));
        }
        warp.wgmma_open = true;
        let pc = warp.groups[group].pc;
        let due = self.time + self.random.delay();
        let warpgroup = &mut cluster.ctas[warp.cta].warpgroups[warp.index as usize / 4];
        let at = (warp.wgmma_issued - warpgroup.first) as usize;
        warp.wgmma_issued += 1;
        if at == warpgroup.queue.len() {
            let knows = Knowledge::default();
            warpgroup.queue.push_back(Issued { pc, a, b, scale_d, warps: 0, group: number, due: u64::MAX, knows });
        }
        let issued = &mut warpgroup.queue[at];
        if (issued.pc, issued.a, issued.b, issued.scale_d, issued.group) != (pc, a, b, scale_d, number) {
            return Fault::err(
                Kind::Divergence,
                format!(
                    "warp {} issues another wgmma than its warpgroup: descriptors {a:#x}, {b:#x} and {:#x}, {:#x}",
                    warp.index, issued.a, issued.b
                ),
            );
        }
        issued.warps |= 1 << (warp.index % 4);
        // Each warp multiplies its own rows: what one of them does not know may not have happened yet.
        match issued.warps.count_ones() {
            1 => issued.knows = warp.behind(mask),
            _ => issued.knows.meet(&warp.behind(mask)),
        }
        warp.advance();
        if issued.warps == 15 {
            issued.due = due;
        }
        Ok(())
    }

    /// Ends the products that are due, in their order.
    pub fn complete_products(&mut self, cluster: &mut Cluster) -> Result<()> {
        for cta in 0..cluster.ctas.len() {
            for index in 0..cluster.ctas[cta].warpgroups.len() {
                while let Some(front) = cluster.ctas[cta].warpgroups[index].queue.front()
                    && front.due <= self.time
                {
                    let Some(issued) = cluster.ctas[cta].warpgroups[index].queue.pop_front() else { break };
                    cluster.ctas[cta].warpgroups[index].first += 1;
                    let id = cluster.ctas[cta].id;
                    let place = |machine: &Self| machine.place_of(id, 4 * index as u32, issued.pc);
                    self.multiply(cluster, cta, index, &issued).map_err(|f| f.at(|| place(self)))?;
                    cluster.changes += 1;
                    self.progress = self.time;
                }
            }
        }
        Ok(())
    }

    fn multiply(&mut self, cluster: &mut Cluster, cta: usize, index: usize, issued: &Issued) -> Result<()> {
        let Op::Wgmma(op) = &self.launch.kernel.code[issued.pc as usize].op else { return Ok(()) };
        let instruction = instruction(op)?;
        let n = op.n as usize;
        let agents = &cluster.agents;
        let target = &mut cluster.ctas[cta];
        let epoch = Epoch::new(target.warpgroups[index].agent, issued.group);
        let (warps, shared) = (&mut target.warps[4 * index..4 * index + 4], &mut target.shared);
        let mut tile = Tile::new(instruction.d, n);
        let word = |lanes: &[u64; 32]| lanes.map(|lane| lane as u32);
        if issued.scale_d {
            for (w, warp) in warps.iter().enumerate() {
                let Some(warp) = warp else { continue };
                for (register, &slot) in op.d.iter().enumerate() {
                    tile.set_register(instruction.d, n, w, register, &word(&warp.registers[slot as usize]));
                }
            }
        }
        let mut fragment = AFragment([[[0; 32]; 4]; 4]);
        if let WgmmaA::Registers(registers) = &op.a {
            for (w, warp) in warps.iter().enumerate() {
                let Some(warp) = warp else { continue };
                for (register, &slot) in registers.iter().take(4).enumerate() {
                    fragment.0[w][register] = word(&warp.registers[slot as usize]);
                }
            }
        }
        let b = decode_descriptor(issued.b)?;
        let a = match &op.a {
            WgmmaA::Descriptor(_) => OperandA::Shared(decode_descriptor(issued.a)?),
            WgmmaA::Registers(_) => OperandA::Registers(&fragment),
        };
        // The reader does not tell the operands apart, so modes are compared only where both have the same.
        let swizzle = match a {
            OperandA::Shared(a) if a.swizzle != b.swizzle => 0,
            _ => swizzle_number(b.swizzle),
        };
        let who = Who { epoch, knows: &issued.knows, proxy: Proxy::Async, atomic: false, swizzle };
        let mut reader = Reader { shared, who, agents, memo: Memo::default() };
        instruction.execute(a, b, issued.scale_d, &mut reader, &mut tile)?;
        for (w, warp) in warps.iter_mut().enumerate() {
            let Some(warp) = warp else { continue };
            for (register, &slot) in op.d.iter().enumerate() {
                warp.registers[slot as usize] = tile.register(instruction.d, n, w, register).map(u64::from);
            }
        }
        for warp in 0..4 {
            self.counters.of(4 * index as u32 + warp).matrix_flops += 2 * 16 * u64::from(op.n) * u64::from(op.k);
        }
        Ok(())
    }
}

fn unfenced<T>(what: &str) -> Result<T> {
    Fault::err(Kind::NotWaited, format!("a register of {what} was accessed after the last wgmma.fence"))
}

struct Reader<'a> {
    shared: &'a mut Shared,
    who: Who<'a>,
    agents: &'a [String],
    memo: Memo,
}

impl SharedRead for Reader<'_> {
    fn read16(&mut self, address: u32) -> Result<[u8; 16]> {
        let mut out = [0; 16];
        out.copy_from_slice(self.shared.read_on(address, 16, self.who, self.agents, &mut self.memo)?);
        Ok(out)
    }
}
