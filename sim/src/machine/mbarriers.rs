//! mbarrier instructions, and the ordering that the objects carry.

use super::Machine;
use super::address::Place;
use super::clock::{Epoch, Knowledge};
use super::registers::lanes;
use super::state::{BarrierClock, Cluster, Wait, Warp};
use super::step::Flow;
use crate::error::{Fault, Kind, Result};
use crate::program::{MbarrierOp, Slot};
use crate::ptx::ast::Space;

impl Machine<'_> {
    /// The CTA and offset of an mbarrier operand.
    pub fn mbarrier_at(&self, cluster: &Cluster, cta: usize, space: Space, address: u64) -> Result<(usize, u32)> {
        match self.locate(cluster, cta, space, address)? {
            Place::Shared(rank, offset) => {
                cluster.ctas[rank].shared.check(offset, 8)?;
                Ok((rank, offset))
            }
            other => {
                Fault::err(Kind::InvalidOperand, format!("an mbarrier must lie in shared memory, not at {other:?}"))
            }
        }
    }

    /// Whoever uses an object must know of its initialisation.
    pub fn knows_init(&self, cluster: &Cluster, cta: usize, offset: u32, warp: &Warp, lane: usize) -> Result<()> {
        let unknown =
            |init: Epoch| !init.same_thread(warp.epoch(lane as u32)) && !warp.known_to(1 << lane).all.covers(init);
        match cluster.ctas[cta].clocks.get(&offset) {
            Some(clock) if unknown(clock.init) => Fault::err(
                Kind::Race,
                format!(
                    "the mbarrier at {offset:#x} was initialised by {}, and nothing orders that before this use",
                    cluster.agent_name(clock.init)
                ),
            ),
            _ => Ok(()),
        }
    }

    /// A phase has ended: its arrivals are released to those who wait.
    fn phase_ended(&mut self, cluster: &mut Cluster, cta: usize, offset: u32, phase: u64) {
        if let Some(clock) = cluster.ctas[cta].clocks.get_mut(&offset) {
            let agent = clock.agent;
            clock.arriving.all.raise(agent, phase as u32);
            clock.released.join(&clock.arriving.clone());
        }
        cluster.changes += 1;
        self.progress = self.time;
    }

    /// Bytes of an asynchronous copy have arrived.
    pub fn complete_tx(&mut self, cluster: &mut Cluster, cta: usize, offset: u32, bytes: u32) -> Result<()> {
        let object = cluster.ctas[cta].mbarriers.get(offset)?;
        let completed = object.complete_tx(bytes)?;
        let phase = object.phase;
        if completed {
            self.phase_ended(cluster, cta, offset, phase);
        }
        Ok(())
    }

    /// `tcgen05.commit`: one arrival when everything before it is complete.
    pub fn arrive_asynchronously(
        &mut self,
        cluster: &mut Cluster,
        cta: usize,
        offset: u32,
        epoch: Epoch,
    ) -> Result<()> {
        if cluster.ctas[cta].exited {
            return Fault::err(
                Kind::Exit,
                format!("a commit signals the mbarrier at {offset:#x} of a CTA that has exited"),
            );
        }
        let target = &mut cluster.ctas[cta];
        let object = target.mbarriers.get(offset)?;
        let arrival = object.arrive(1)?;
        let phase = object.phase;
        if let Some(clock) = target.clocks.get_mut(&offset) {
            clock.incoming -= 1;
            clock.arriving.all.raise(epoch.agent(), epoch.clock());
        }
        if arrival.completed {
            self.phase_ended(cluster, cta, offset, phase);
        }
        Ok(())
    }

    /// Where an asynchronous operation that will signal this object stands in time.
    pub fn signal_epoch(&mut self, cluster: &mut Cluster, cta: usize, offset: u32) -> Result<Epoch> {
        let target = &mut cluster.ctas[cta];
        let phase = target.mbarriers.get(offset)?.phase as u32;
        match target.clocks.get_mut(&offset) {
            Some(clock) => {
                clock.incoming += 1;
                Ok(Epoch::new(clock.agent, phase + 1))
            }
            None => Fault::err(Kind::Mbarrier, format!("no initialised mbarrier at shared offset {offset:#x}")),
        }
    }

    pub fn mbarrier(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        mask: u32,
        op: &MbarrierOp,
        space: Space,
        (address, displacement): (Slot, i64),
    ) -> Result<Flow> {
        let addresses = *warp.get(address, mask)?;
        let at = |machine: &Self, cluster: &Cluster, lane: usize| {
            let address = addresses[lane].wrapping_add_signed(displacement);
            machine.mbarrier_at(cluster, warp.cta, space, address)
        };
        if let MbarrierOp::Wait { done, parity, operand, suspend } = op {
            let operands = *warp.get(*operand, mask)?;
            let (mut results, mut first) = (0, None);
            // Lanes that have seen their phase end, mostly all of them at one object.
            let mut seen: Vec<((usize, u32), u32)> = Vec::new();
            for lane in lanes(mask) {
                let (cta, offset) = at(self, cluster, lane)?;
                if cta != warp.cta {
                    return Fault::err(Kind::Mbarrier, "a wait on an mbarrier of another CTA");
                }
                self.knows_init(cluster, cta, offset, warp, lane)?;
                let object = cluster.ctas[cta].mbarriers.get(offset)?;
                let ready = match parity {
                    true => object.test_parity(operands[lane] as u32)?,
                    false => object.test_state(operands[lane])?,
                };
                if ready {
                    results |= 1 << lane;
                    match seen.iter_mut().find(|(object, _)| *object == (cta, offset)) {
                        Some((_, lanes)) => *lanes |= 1 << lane,
                        None => seen.push(((cta, offset), 1 << lane)),
                    }
                } else {
                    first.get_or_insert((cta as u32, offset, parity.then_some(operands[lane] as u32)));
                }
            }
            for ((cta, offset), lanes) in seen {
                if let Some(clock) = cluster.ctas[cta].clocks.get(&offset) {
                    warp.learn(lanes, &clock.released);
                }
            }
            if let Some((cta, offset, parity)) = first {
                // try_wait suspends; sometimes it gives up early, as it may.
                if *suspend && self.random.below(4) != 0 {
                    return Ok(Flow::Wait(Wait::Mbarrier { cta, offset, parity }));
                }
            }
            if let Some(done) = done {
                warp.set_predicate(*done, mask, results);
            }
            return Ok(Flow::Next);
        }
        let mut states = [0; 32];
        let mut state_slot = None;
        let mut told = None;
        for lane in lanes(mask) {
            let (cta, offset) = at(self, cluster, lane)?;
            let value = |slot: Slot| warp.get(slot, 1 << lane).map(|r| r[lane] as u32);
            if !matches!(op, MbarrierOp::Init { .. }) {
                self.knows_init(cluster, cta, offset, warp, lane)?;
            }
            let remote = cta != warp.cta;
            match op {
                MbarrierOp::Init { count } => {
                    let count = value(*count)?;
                    if remote {
                        return Fault::err(Kind::Mbarrier, "mbarrier.init in another CTA");
                    }
                    let who = warp.who(lane as u32, false);
                    let agent = match cluster.ctas[cta].clocks.get(&offset) {
                        Some(clock) => clock.agent,
                        None => {
                            cluster.new_agent(format!("copies that signal the mbarrier at {offset:#x} of rank {cta}"))
                        }
                    };
                    let agents = &cluster.agents;
                    let target = &mut cluster.ctas[cta];
                    target.mbarriers.init(offset, count)?;
                    target.shared.note_write(offset, 8, who, false, agents)?;
                    target.shared.mark_written(offset, 8, true);
                    let (low, high) = target.mbarrier_range;
                    target.mbarrier_range = (low.min(offset), high.max(offset + 7));
                    let fresh = Knowledge::default();
                    let clock =
                        BarrierClock { agent, init: who.epoch, arriving: fresh.clone(), released: fresh, incoming: 0 };
                    target.clocks.insert(offset, clock);
                }
                MbarrierOp::Invalidate => cluster.ctas[cta].mbarriers.inval(offset)?,
                MbarrierOp::ExpectTx { bytes } => {
                    let bytes = value(*bytes)?;
                    cluster.ctas[cta].mbarriers.get(offset)?.expect_tx(bytes)?;
                }
                MbarrierOp::CompleteTx { bytes } => {
                    let bytes = value(*bytes)?;
                    self.complete_tx(cluster, cta, offset, bytes)?;
                }
                MbarrierOp::Arrive { state, count, expect, drop, no_complete } => {
                    let count = count.map_or(Ok(1), value)?;
                    let expect = expect.map(value).transpose()?;
                    let target = &mut cluster.ctas[cta];
                    let object = target.mbarriers.get(offset)?;
                    let arrival = match (expect, drop, no_complete) {
                        (tx, true, _) => object.arrive_drop(tx.unwrap_or(0), count)?,
                        (Some(tx), ..) => object.arrive_expect_tx(tx)?,
                        (None, _, true) => object.arrive_no_complete(count)?,
                        (None, ..) => object.arrive(count)?,
                    };
                    let phase = object.phase;
                    // All lanes of the instruction arrive together, mostly at one object.
                    if told != Some((cta, offset))
                        && let Some(clock) = target.clocks.get_mut(&offset)
                    {
                        warp.release(mask, &mut clock.arriving);
                        told = Some((cta, offset));
                    }
                    states[lane] = arrival.state;
                    state_slot = *state;
                    if state.is_some() && remote {
                        return Fault::err(Kind::Mbarrier, "a remote arrival returns no state");
                    }
                    if arrival.completed {
                        self.phase_ended(cluster, cta, offset, phase);
                        told = None;
                    }
                    self.progress = self.time;
                }
                MbarrierOp::Wait { .. } => {}
            }
        }
        if matches!(op, MbarrierOp::Arrive { .. }) {
            warp.advance();
        }
        if let Some(slot) = state_slot {
            warp.set(slot, mask, &states)?;
        }
        Ok(Flow::Next)
    }
}
