//! Races on global memory within a launch.

use super::Machine;
use super::clock::{Clock, Knowledge};
use super::global::Access;
use super::shared::{Proxy, Who};
use super::state::{Cluster, Warp};
use crate::error::{Fault, Kind, Result};
use crate::map::Map;

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    Write,
    /// Reads and writes; the thread learns what was there before.
    Update,
    /// Reads and writes, and nobody learns what was there before: `red`, reductions of copies.
    Reduce,
}

impl Intent {
    pub fn writes(self) -> bool {
        self != Intent::Read
    }

    /// Whether the thread may learn from it what others did (PTX ISA 8.11.1: `red` never does).
    fn observes(self) -> bool {
        matches!(self, Intent::Read | Intent::Update)
    }
}

/// What strong writes to an address of global memory have released, by cluster.
pub type Released = Map<u64, Vec<(u32, Clock)>>;

impl Machine<'_> {
    /// Strong accesses of a lane to global memory order clusters: each write counts as a release, each read as an
    /// acquire, whatever fences there are, so that a missing one goes unnoticed but no race is invented.
    pub fn synchronise(&mut self, cluster: &Cluster, warp: &mut Warp, lane: u32, address: u64, intent: Intent) {
        if intent.observes()
            && let Some(released) = self.released.get(&address)
        {
            let mut what = Knowledge::default();
            for (number, clock) in released {
                match *number == cluster.number {
                    true => what.all.join(clock),
                    false => what.learn(*number, clock),
                }
            }
            warp.learn(1 << lane, &what);
        }
        if intent.writes() {
            let behind = warp.behind(1 << lane);
            let mut known =
                Knowledge { far: self.released.remove(&address).unwrap_or_default(), ..Knowledge::default() };
            known.learn(cluster.number, &behind.all);
            behind.far.iter().for_each(|(number, clock)| known.learn(*number, clock));
            self.released.insert(address, known.far);
            warp.advance();
        }
    }

    /// Reports two accesses to global memory in one launch that nothing orders.
    pub fn note_global(
        &mut self,
        cluster: &Cluster,
        address: u64,
        bytes: usize,
        intent: Intent,
        who: Who,
    ) -> Result<()> {
        if intent.writes() {
            self.progress = self.time;
        }
        let launch = self.launch.number;
        let asynchronous = who.proxy == Proxy::Async;
        let (allocation, start) = self.memory.range(address, bytes)?;
        // Most loads of the async proxy are of inputs that nothing writes: they leave no traces before there are any.
        if asynchronous && !intent.writes() && allocation.traces.is_empty() {
            return Ok(());
        }
        let base = allocation.base;
        for index in start / 4..=(start + bytes - 1) / 4 {
            let low = start.saturating_sub(4 * index).min(4);
            let high = (start + bytes - 4 * index).min(4);
            let mask = ((1u8 << high) - 1) & !((1u8 << low) - 1);
            let (epoch, atomic) = (who.epoch, who.atomic);
            let own = Access { launch, cluster: cluster.number, epoch, atomic, bytes: mask, generic: !asynchronous };
            let trace = &mut allocation.traces()[index];
            let at = base + 4 * index as u64;
            let same = |other: &Access| other.launch == launch && other.bytes & mask != 0;
            let near = |other: &Access| other.cluster == cluster.number;
            let clash = |other: &Access| {
                same(other)
                    && !(other.atomic && atomic)
                    && match near(other) {
                        true => !other.epoch.same_thread(epoch) && !who.knows.all.covers(other.epoch),
                        false => !who.knows.of(other.cluster).is_some_and(|known| known.covers(other.epoch)),
                    }
            };
            let other = match () {
                () if clash(&trace.writer) => Some(("written", trace.writer)),
                () if intent.writes() && clash(&trace.reader) => Some(("read", trace.reader)),
                () => None,
            };
            if let Some((what, other)) = other {
                let by = match near(&other) {
                    true => cluster.agent_name(other.epoch),
                    false => format!("cluster {}", other.cluster),
                };
                return Fault::err(
                    Kind::Race,
                    format!(
                        "global {at:#x} was {what} by {by} in the same launch, and nothing orders the two accesses"
                    ),
                );
            }
            let writer = trace.writer;
            if asynchronous
                && writer.generic
                && !writer.atomic
                && same(&writer)
                && near(&writer)
                && !who.knows.fenced.covers(writer.epoch)
            {
                return Fault::err(
                    Kind::MissingProxyFence,
                    format!(
                        "global {at:#x} was written through the generic proxy by {}, and no fence.proxy.async lies between",
                        cluster.agent_name(writer.epoch)
                    ),
                );
            }
            match intent.writes() {
                true => trace.writer = own,
                false => trace.reader = own,
            }
        }
        Ok(())
    }
}
