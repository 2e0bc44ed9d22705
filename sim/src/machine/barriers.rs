//! Named barriers, the cluster barrier, registers of warpgroups, and what the end of a warp means to them.

use super::Machine;
use super::state::{Barrier, Cluster, Wait, Warp};
use super::step::Flow;
use crate::error::{Fault, Kind, Result};
use crate::program::{Op, VoteMode};

/// `needed` of a barrier for all threads of the CTA.
const EVERYONE: u32 = u32::MAX;

fn misuse<T>(message: String) -> Result<T> {
    Fault::err(Kind::Barrier, message)
}

impl Machine<'_> {
    pub fn barrier(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        group: usize,
        mask: u32,
        op: &Op,
    ) -> Result<Flow> {
        if let Some(flow) = self.together(warp, mask, u32::MAX) {
            return Ok(flow);
        }
        match op {
            Op::Barrier { id, count, wait, aligned, reduce } => {
                if *aligned && mask != warp.groups[group].mask {
                    return Fault::err(
                        Kind::Divergence,
                        "an aligned barrier under a predicate that differs among lanes",
                    );
                }
                let id = warp.uniform(*id, mask, "the barrier")? as u32;
                if id > 15 {
                    return misuse(format!("barrier {id}: there are 16"));
                }
                let count = match count {
                    Some(slot) => Some(warp.uniform(*slot, mask, "the thread count")? as u32),
                    None => None,
                };
                if let Some(token) = warp.groups[group].token {
                    return self.barrier_wait(cluster, warp, mask, id, token, reduce);
                }
                let vote = match reduce {
                    Some((_, _, p)) => Some(warp.predicate(*p, mask)? & mask),
                    None => None,
                };
                let token = self.barrier_arrive(cluster, warp, mask, id, count, vote, reduce)?;
                if !wait {
                    return Ok(Flow::Next);
                }
                warp.groups[group].token = Some(token);
                self.barrier_wait(cluster, warp, mask, id, token, reduce)
            }
            Op::ClusterArrive { relaxed } => {
                if warp.cluster_token.is_some() {
                    return misuse("a second arrival at the cluster barrier without a wait".into());
                }
                warp.cluster_token = Some(cluster.barrier.generation);
                if !relaxed {
                    warp.release(mask, &mut cluster.barrier.knows);
                    warp.advance();
                }
                cluster.barrier.arrived += 1;
                self.cluster_complete(cluster);
                Ok(Flow::Next)
            }
            Op::ClusterWait => match warp.cluster_token {
                None => misuse("a wait at the cluster barrier without an arrival".into()),
                Some(token) if token < cluster.barrier.generation => {
                    warp.learn(mask, &cluster.barrier.released);
                    warp.cluster_token = None;
                    Ok(Flow::Next)
                }
                Some(_) => Ok(Flow::Wait(Wait::Cluster)),
            },
            Op::SetMaxRegisters { increase, count } => self.set_registers(cluster, warp, *increase, *count),
            _ => Ok(Flow::Next),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn barrier_arrive(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        mask: u32,
        id: u32,
        count: Option<u32>,
        vote: Option<u32>,
        reduce: &Option<(VoteMode, u32, (u32, bool))>,
    ) -> Result<u64> {
        let cta = &mut cluster.ctas[warp.cta];
        let barrier = &mut cta.barriers[id as usize];
        let needed = count.unwrap_or(EVERYONE);
        if needed != EVERYONE && (needed == 0 || !needed.is_multiple_of(32)) {
            return misuse(format!("barrier {id} for {needed} threads: a multiple of 32 is needed"));
        }
        if needed != EVERYONE && needed > 32 * self.launch.warps() {
            return misuse(format!("barrier {id} for {needed} threads of a CTA of {}", self.launch.threads()));
        }
        if barrier.arrived > 0 && barrier.needed != needed {
            let name = |n: u32| if n == EVERYONE { "all".to_string() } else { n.to_string() };
            let (own, other) = (name(needed), name(barrier.needed));
            return misuse(format!("barrier {id} for {own} threads, while others are at it for {other}"));
        }
        if barrier.arrived > 0 && barrier.reduce != vote.is_some() {
            return misuse(format!("barrier {id}: bar.red among other arrivals of one phase"));
        }
        if barrier.warps.iter().any(|(w, _)| *w == warp.index) {
            return misuse(format!("warp {} arrives at barrier {id} twice in one phase", warp.index));
        }
        if barrier.arrived == 0 {
            barrier.needed = needed;
            barrier.value = match reduce {
                Some((VoteMode::All, ..)) => 1,
                _ => 0,
            };
        }
        barrier.reduce = vote.is_some();
        if let (Some(vote), Some((mode, ..))) = (vote, reduce) {
            match mode {
                VoteMode::Ballot => barrier.value += vote.count_ones(),
                VoteMode::All => barrier.value &= u32::from(vote == mask),
                _ => barrier.value |= u32::from(vote != 0),
            }
        }
        barrier.arrived += 32;
        barrier.warps.push((warp.index, mask));
        warp.release(mask, &mut barrier.knows);
        warp.advance();
        let token = barrier.generation;
        self.progress = self.time;
        if barrier.arrived > needed {
            return misuse(format!("{} threads at barrier {id}, which is for {needed}", barrier.arrived));
        }
        let everyone = 32 * cta.live_warps;
        if barrier.arrived >= needed.min(everyone) && (needed != EVERYONE || barrier.arrived >= everyone) {
            if needed != EVERYONE && barrier.arrived < needed {
                // Whether exits count towards an explicit number is not established; here they do not.
                return Ok(token);
            }
            barrier.complete();
            cluster.changes += 1;
        }
        Ok(token)
    }

    fn barrier_wait(
        &mut self,
        cluster: &mut Cluster,
        warp: &mut Warp,
        mask: u32,
        id: u32,
        token: u64,
        reduce: &Option<(VoteMode, u32, (u32, bool))>,
    ) -> Result<Flow> {
        let barrier: &Barrier = &cluster.ctas[warp.cta].barriers[id as usize];
        if barrier.generation == token {
            let (arrived, needed) = (barrier.arrived, barrier.needed);
            return Ok(Flow::Wait(Wait::Barrier { id, arrived, needed }));
        }
        warp.learn(mask, &barrier.released);
        let result = barrier.result;
        if let Some((mode, d, _)) = reduce {
            match mode {
                VoteMode::Ballot => warp.set(*d, mask, &[result.into(); 32])?,
                _ => warp.set_predicate(*d, mask, result.wrapping_neg()),
            }
        }
        Ok(Flow::Next)
    }

    fn cluster_complete(&mut self, cluster: &mut Cluster) {
        let live: u32 = cluster.ctas.iter().map(|cta| cta.live_warps).sum();
        if cluster.barrier.arrived >= live && cluster.barrier.arrived > 0 {
            cluster.barrier.complete();
            cluster.changes += 1;
        }
        self.progress = self.time;
    }

    fn set_registers(&mut self, cluster: &mut Cluster, warp: &mut Warp, increase: bool, count: u32) -> Result<Flow> {
        let misuse = |message: String| Fault::err(Kind::Registers, message);
        let entry = &self.launch.kernel.entry;
        if entry.max_threads.is_none() && entry.required_threads.is_none() && entry.max_registers.is_none() {
            return misuse("setmaxnreg in a kernel without launch bounds or .maxnreg".into());
        }
        if !(24..=256).contains(&count) || !count.is_multiple_of(8) {
            return misuse(format!("setmaxnreg to {count}: a multiple of 8 from 24 to 256 is needed"));
        }
        if warp.index / 4 * 4 + 4 > self.launch.warps() {
            return misuse(format!("setmaxnreg in warp {}, whose warpgroup is not whole", warp.index));
        }
        let (own, cta) = (warp.max_registers, &mut cluster.ctas[warp.cta]);
        if increase && count < own || !increase && count > own {
            let name = if increase { "inc" } else { "dec" };
            return misuse(format!("setmaxnreg.{name} to {count} from {own}"));
        }
        let wanted = i64::from(count) - i64::from(own);
        if wanted > cta.free_registers {
            let (wanted, free) = (wanted as u32, cta.free_registers);
            return Ok(Flow::Wait(Wait::Registers { wanted, free }));
        }
        cta.free_registers -= wanted;
        warp.max_registers = count;
        cluster.changes += 1;
        self.progress = self.time;
        Ok(Flow::Next)
    }

    /// A warp has ended: barriers for everyone wait for one less.
    pub fn warp_ended(&mut self, cluster: &mut Cluster, warp: &Warp) -> Result<()> {
        let cta = &mut cluster.ctas[warp.cta];
        cta.live_warps -= 1;
        let everyone = 32 * cta.live_warps;
        for barrier in &mut cta.barriers {
            if barrier.needed == EVERYONE && barrier.arrived > 0 && barrier.arrived >= everyone {
                barrier.complete();
            }
        }
        if cta.live_warps == 0 {
            cta.exited = true;
            cta.tensor.memory.exit(warp.cta as u32)?;
            let aimed = cta.clocks.iter().find(|(_, clock)| clock.incoming > 0).map(|(offset, _)| *offset);
            if let Some(offset) = aimed {
                return Fault::err(
                    Kind::Exit,
                    format!("the CTA exits while asynchronous copies will still signal its mbarrier at {offset:#x}"),
                );
            }
        }
        if warp.cluster_token == Some(cluster.barrier.generation) {
            cluster.barrier.arrived -= 1;
        }
        self.cluster_complete(cluster);
        cluster.changes += 1;
        Ok(())
    }
}
