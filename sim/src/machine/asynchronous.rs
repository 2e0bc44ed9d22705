//! What asynchronous operations do when they complete, at a random moment after their issue.

use super::Machine;
use super::clock::{Epoch, Knowledge};
use super::shared::{Proxy, Who};
use super::state::{Cluster, Cta};
use super::trace::Intent;
use crate::clc::RESPONSE_BYTES;
use crate::error::{Fault, Kind, Result};
use crate::tma::{ReduceOp, ReduceType};

/// Contiguous bytes of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Global address; `None`: out of bounds.
    pub global: Option<u64>,
    /// Offset in shared memory.
    pub shared: u32,
    pub bytes: u32,
}

/// Who issued an operation.
#[derive(Clone, Copy, Debug)]
pub struct Issuer {
    pub cta: usize,
    pub warp: u32,
    pub lane: u32,
    pub pc: u32,
}

#[derive(Debug)]
pub enum Action {
    /// Into the shared memory of CTAs; the offsets are relative to the first piece's.
    Load {
        pieces: Vec<Piece>,
        fill: [u8; 16],
        targets: Vec<Target>,
        bytes: u32,
        swizzle: u8,
    },
    /// From the shared memory of a CTA to that of another.
    Cluster {
        from: u32,
        target: Target,
        to: u32,
        bytes: u32,
        reduce: Option<(ReduceOp, ReduceType)>,
    },
    /// Values on their way to the shared memory of a CTA, through the generic proxy.
    Deliver {
        data: Vec<u8>,
        to: u32,
        target: Target,
        reduce: Option<(ReduceOp, ReduceType)>,
    },
    /// Answers a request to withdraw a cluster.
    Respond {
        offset: u32,
        targets: Vec<Target>,
    },
    /// Reads the source of a store.
    StoreRead {
        pieces: Vec<Piece>,
        reduce: Option<(ReduceOp, ReduceType)>,
    },
    StoreWrite {
        data: Vec<(u64, Vec<u8>)>,
        reduce: Option<(ReduceOp, ReduceType)>,
    },
}

/// A CTA that receives data, and the mbarrier that learns of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub cta: usize,
    pub mbarrier: (usize, u32),
    pub epoch: Epoch,
}

#[derive(Debug)]
pub struct Pending {
    pub id: u64,
    pub due: u64,
    pub issuer: Issuer,
    /// What happened before the issue.
    pub knows: Knowledge,
    pub epoch: Epoch,
    pub action: Action,
}

impl Cluster {
    /// When the next asynchronous operation completes.
    pub fn next_due(&self) -> Option<u64> {
        let copies = self.pending.iter().map(|p| p.due);
        let products = self.ctas.iter().flat_map(|cta| &cta.warpgroups).filter_map(|w| w.queue.front()).map(|i| i.due);
        let tensor = self.tensor.iter().filter_map(|queue| queue.front()).map(|i| i.due);
        copies.chain(products).chain(tensor).filter(|&due| due != u64::MAX).min()
    }
}

impl Machine<'_> {
    pub fn complete_due(&mut self, cluster: &mut Cluster) -> Result<()> {
        let mut at = 0;
        while at < cluster.pending.len() {
            if cluster.pending[at].due > self.time {
                at += 1;
                continue;
            }
            let pending = cluster.pending.swap_remove(at);
            let (cta, issuer) = (cluster.ctas[pending.issuer.cta].id, pending.issuer);
            self.complete(cluster, pending).map_err(|fault| fault.at(|| self.place_of(cta, issuer.warp, issuer.pc)))?;
            cluster.changes += 1;
            self.progress = self.time;
        }
        self.complete_products(cluster)?;
        self.complete_tensor(cluster)
    }

    fn complete(&mut self, cluster: &mut Cluster, pending: Pending) -> Result<()> {
        let Pending { issuer, knows, epoch, action, id, .. } = pending;
        let who = |epoch| Who { epoch, knows: &knows, proxy: Proxy::Async, atomic: false, swizzle: 0 };
        match action {
            Action::Load { pieces, fill, targets, bytes, swizzle } => {
                for piece in &pieces {
                    let size = piece.bytes as usize;
                    let (mut data, mut valid) = (fill, true);
                    if let Some(address) = piece.global {
                        self.note_global(cluster, address, size, Intent::Read, who(epoch))?;
                        let (allocation, start) = self.memory.range(address, size)?;
                        data[..size].copy_from_slice(&allocation.bytes[start..start + size]);
                        valid = allocation.valid[start..start + size].iter().all(|&v| v != 0);
                    }
                    for target in &targets {
                        cluster.write_shared(
                            target.cta,
                            piece.shared,
                            &data[..size],
                            valid,
                            Who { swizzle, ..who(target.epoch) },
                        )?;
                    }
                }
                self.counters.of(issuer.warp).bulk_loaded += u64::from(bytes);
                for target in targets {
                    self.signal(cluster, target, bytes)?;
                }
            }
            Action::Respond { offset, targets } => {
                let choice = self.random.below(1 << 20);
                let response = self.waiting.cancel(choice).encode();
                for target in targets {
                    cluster.write_shared(target.cta, offset, &response, true, who(target.epoch))?;
                    self.signal(cluster, target, RESPONSE_BYTES)?;
                }
            }
            Action::Deliver { mut data, to, target, reduce } => {
                let who = Who { proxy: Proxy::Generic, atomic: reduce.is_some(), ..who(target.epoch) };
                let bytes = data.len() as u32;
                if let Some((op, kind)) = reduce {
                    let mut old = cluster.read_shared(target.cta, to, bytes, who)?;
                    op.apply(kind, &mut old, &data);
                    data = old;
                }
                cluster.write_shared(target.cta, to, &data, true, who)?;
                self.signal(cluster, target, bytes)?;
            }
            Action::Cluster { from, target, to, bytes, reduce } => {
                let mut data = cluster.read_shared(issuer.cta, from, bytes, who(epoch))?;
                if let Some((op, kind)) = reduce {
                    let mut old = cluster.read_shared(target.cta, to, bytes, who(target.epoch))?;
                    op.apply(kind, &mut old, &data);
                    data = old;
                }
                cluster.write_shared(target.cta, to, &data, true, who(target.epoch))?;
                self.signal(cluster, target, bytes)?;
            }
            Action::StoreRead { pieces, reduce } => {
                let mut data = Vec::with_capacity(pieces.len());
                for piece in &pieces {
                    let Some(address) = piece.global else { continue };
                    data.push((address, cluster.read_shared(issuer.cta, piece.shared, piece.bytes, who(epoch))?));
                }
                if let Some(warp) = cluster.ctas[issuer.cta].warps[issuer.warp as usize].as_mut()
                    && let Some(groups) = warp.bulk.get_mut(&issuer.lane)
                {
                    groups.pending.iter_mut().filter(|p| p.1 == id).for_each(|p| p.2 = false);
                }
                let due = self.time + self.random.delay();
                let action = Action::StoreWrite { data, reduce };
                cluster.pending.push(Pending { id, due, issuer, knows, epoch, action });
            }
            Action::StoreWrite { data, reduce } => {
                for (address, new) in data {
                    let (intent, atomic) = match reduce {
                        Some(_) => (Intent::Reduce, true),
                        None => (Intent::Write, false),
                    };
                    self.note_global(cluster, address, new.len(), intent, Who { atomic, ..who(epoch) })?;
                    let (allocation, start) = self.memory.range(address, new.len())?;
                    let range = start..start + new.len();
                    match reduce {
                        Some((op, kind)) => {
                            allocation.check_written(start, new.len())?;
                            op.apply(kind, &mut allocation.bytes[range], &new);
                        }
                        None => {
                            allocation.bytes[range.clone()].copy_from_slice(&new);
                            allocation.valid[range].fill(1);
                        }
                    }
                    self.counters.of(issuer.warp).bulk_stored += new.len() as u64;
                }
                if let Some(warp) = cluster.ctas[issuer.cta].warps[issuer.warp as usize].as_mut()
                    && let Some(groups) = warp.bulk.get_mut(&issuer.lane)
                {
                    groups.pending.retain(|p| p.1 != id);
                }
            }
        }
        Ok(())
    }

    fn signal(&mut self, cluster: &mut Cluster, target: Target, bytes: u32) -> Result<()> {
        let (cta, offset) = target.mbarrier;
        if cluster.ctas[cta].exited {
            return Fault::err(
                Kind::Exit,
                format!("a copy signals the mbarrier at {offset:#x} of a CTA that has exited"),
            );
        }
        if let Some(clock) = cluster.ctas[cta].clocks.get_mut(&offset) {
            clock.incoming -= 1;
        }
        self.complete_tx(cluster, cta, offset, bytes)
    }
}

impl Cluster {
    /// The CTA that a copy reaches, if it has not exited.
    fn present(&mut self, cta: usize, offset: u32) -> Result<(&mut Cta, &[String])> {
        if self.ctas[cta].exited {
            return Fault::err(
                Kind::Exit,
                format!("a copy reaches shared offset {offset:#x} of a CTA that has exited"),
            );
        }
        Ok((&mut self.ctas[cta], &self.agents))
    }

    fn write_shared(&mut self, cta: usize, offset: u32, data: &[u8], valid: bool, who: Who) -> Result<()> {
        let (target, agents) = self.present(cta, offset)?;
        target.store(agents, offset, data, valid, who)
    }

    fn read_shared(&mut self, cta: usize, offset: u32, bytes: u32, who: Who) -> Result<Vec<u8>> {
        let (target, agents) = self.present(cta, offset)?;
        target.load(agents, offset, bytes, who).map(<[u8]>::to_vec)
    }
}
