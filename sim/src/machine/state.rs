//! The state of clusters, CTAs and warps.

use std::cell::Cell;
use std::collections::VecDeque;

use super::clock::{Agent, Epoch, Knowledge};
use super::shared::Shared;
use super::tcgen05::Issue;
use super::tensor_memory::TensorState;
use crate::map::Map;
use crate::mbarrier::Mbarriers;
use crate::program::{Lanes, Slot};

/// What a group of lanes waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The other lanes of a mask.
    Lanes(u32),
    Barrier {
        id: u32,
        arrived: u32,
        needed: u32,
    },
    Cluster,
    Mbarrier {
        cta: u32,
        offset: u32,
        parity: Option<u32>,
    },
    Wgmma {
        pending: u32,
    },
    Bulk {
        pending: u32,
        read: bool,
    },
    Registers {
        wanted: u32,
        free: i64,
    },
    /// Columns of Tensor Memory.
    Columns(u32),
}

/// Lanes that are at the same instruction.
#[derive(Clone, Debug)]
pub struct Group {
    pub pc: u32,
    pub mask: u32,
    pub wait: Option<Wait>,
    /// `Cluster::changes` when it last tried.
    pub tried: u64,
    /// Generation of the barrier that it has arrived at.
    pub token: Option<u64>,
}

/// Bulk groups of one lane.
#[derive(Clone, Debug, Default)]
pub struct BulkGroups {
    pub committed: u32,
    /// Operations of which something is left: their group, identity, and whether the source is still read.
    pub pending: Vec<(u32, u64, bool)>,
}

pub struct Warp {
    pub index: u32,
    pub cta: usize,
    pub registers: Vec<Lanes>,
    /// Lanes in which a register has a value.
    pub valid: Vec<u32>,
    /// When it was last read or written, in instructions of the warp.
    pub stamps: Vec<Cell<u32>>,
    /// Twice the wgmma group that holds a register, plus 1 if it is an accumulator; 0: none.
    pub busy: Vec<u32>,
    pub busy_list: Vec<Slot>,
    pub predicates: Vec<u32>,
    pub predicates_valid: Vec<u32>,
    pub groups: Vec<Group>,
    pub live: u32,
    pub agent: Agent,
    /// Its own time; `knows` says of it what its lanes know of each other.
    pub clock: u32,
    /// Its bulk groups, as an agent.
    pub bulk_agent: Agent,
    /// Its tcgen05.ld and st, and its other tcgen05 operations, with how many it has issued.
    pub access_agent: Agent,
    pub access_count: u32,
    pub tensor_agent: Agent,
    pub tensor_count: u32,
    pub knows: Knowledge,
    /// Lanes that have waited for something without the others, and what they know.
    pub solo: Option<Box<(u32, Knowledge)>>,
    pub instructions: u32,
    /// `instructions` at the last wgmma.fence.
    pub fenced_at: Option<u32>,
    pub wgmma_issued: u64,
    pub wgmma_group: u32,
    pub wgmma_open: bool,
    pub bulk: Map<u32, BulkGroups>,
    pub max_registers: u32,
    /// Generation of the cluster barrier that it has arrived at.
    pub cluster_token: Option<u64>,
    pub local: Vec<u8>,
    pub copies: Vec<PendingCopy>,
    /// Groups of `cp.async` that each lane has committed.
    pub copy_groups: [u32; 32],
}

/// A `cp.async` that its lane has not waited for.
#[derive(Clone, Debug)]
pub struct PendingCopy {
    pub lane: usize,
    pub group: u32,
    pub offset: u32,
    pub data: [u8; 16],
    pub bytes: usize,
}

impl Warp {
    pub fn epoch(&self, lane: u32) -> Epoch {
        Epoch::of_lane(self.agent, lane, self.clock)
    }

    /// Starts a new epoch: what follows is not covered by what was released before.
    pub fn advance(&mut self) {
        self.clock += 1;
    }

    /// What these lanes know, each of them.
    pub fn known_to(&self, lanes: u32) -> &Knowledge {
        match &self.solo {
            Some(solo) if lanes & !solo.0 == 0 => &solo.1,
            _ => &self.knows,
        }
    }

    /// These lanes have waited for something.
    pub fn learn(&mut self, lanes: u32, what: &Knowledge) {
        if self.live & !lanes == 0 {
            self.knows.join(what);
            if let Some(solo) = &mut self.solo {
                solo.1.join(what);
            }
            return;
        }
        if self.solo.as_ref().is_some_and(|solo| solo.0 != lanes) {
            // Several groups of lanes are not told apart.
            self.unite();
        }
        let solo = self.solo.get_or_insert_with(|| Box::new((lanes, self.knows.clone())));
        solo.1.join(what);
    }

    /// These lanes know what an agent did until `clock`.
    pub fn raise(&mut self, lanes: u32, agent: Agent, clock: u32) {
        let mut what = Knowledge::default();
        what.all.raise(agent, clock);
        self.learn(lanes, &what);
    }

    /// All lanes know what some of them know.
    fn unite(&mut self) {
        if let Some(solo) = self.solo.take() {
            self.knows.join(&solo.1);
        }
    }

    /// All that one or another of these lanes may count on.
    pub fn behind(&self, lanes: u32) -> Knowledge {
        let mut knows = self.best(lanes).clone();
        self.add_own(lanes, &mut knows);
        knows
    }

    /// Hands all that these lanes may count on to whoever learns of `knows`.
    pub fn release(&self, lanes: u32, knows: &mut Knowledge) {
        knows.join(self.best(lanes));
        self.add_own(lanes, knows);
    }

    fn best(&self, lanes: u32) -> &Knowledge {
        match &self.solo {
            Some(solo) if lanes & solo.0 != 0 => &solo.1,
            _ => &self.knows,
        }
    }

    fn add_own(&self, lanes: u32, knows: &mut Knowledge) {
        let lanes = if lanes & self.live == self.live { u32::MAX } else { lanes };
        knows.all.share(self.agent, lanes, self.clock);
    }

    /// These lanes meet: each knows from here on what the others did and know.
    pub fn meet(&mut self, lanes: u32) {
        self.unite();
        let lanes = if self.live & !lanes == 0 { u32::MAX } else { lanes };
        self.knows.all.share(self.agent, lanes, self.clock);
        self.advance();
    }

    /// A proxy fence of these lanes.
    pub fn fence(&mut self, lanes: u32) {
        let behind = self.behind(lanes).all;
        self.knows.fenced.join(&behind);
        if let Some(solo) = &mut self.solo {
            solo.1.fenced.join(&behind);
        }
        self.advance();
    }
}

#[derive(Clone, Debug, Default)]
pub struct Barrier {
    pub generation: u64,
    pub arrived: u32,
    pub needed: u32,
    /// Warps that arrived in this generation, with the lanes.
    pub warps: Vec<(u32, u32)>,
    pub knows: Knowledge,
    pub released: Knowledge,
    pub reduce: bool,
    pub value: u32,
    pub result: u32,
}

/// Ordering that an mbarrier carries.
#[derive(Clone, Debug)]
pub struct BarrierClock {
    pub agent: Agent,
    /// Where and when it was initialised.
    pub init: Epoch,
    pub arriving: Knowledge,
    pub released: Knowledge,
    /// Asynchronous operations that will signal it.
    pub incoming: u32,
}

/// A wgmma that the warps of a warpgroup have begun to issue.
#[derive(Clone, Debug)]
pub struct Issued {
    pub pc: u32,
    pub a: u64,
    pub b: u64,
    pub scale_d: bool,
    pub warps: u32,
    pub group: u32,
    pub due: u64,
    pub knows: Knowledge,
}

#[derive(Clone, Debug, Default)]
pub struct Warpgroup {
    pub queue: VecDeque<Issued>,
    /// Number of the first of the queue.
    pub first: u64,
    pub agent: Agent,
}

pub struct Cta {
    pub id: [u32; 3],
    pub shared: Shared,
    pub mbarriers: Mbarriers,
    /// Bytes from the first to the last mbarrier.
    pub mbarrier_range: (u32, u32),
    pub clocks: Map<u32, BarrierClock>,
    pub barriers: [Barrier; 16],
    /// Boxed: a warp is taken out while it runs.
    pub warps: Vec<Option<Box<Warp>>>,
    pub warpgroups: Vec<Warpgroup>,
    pub tensor: TensorState,
    pub requests: crate::clc::Requests,
    pub free_registers: i64,
    pub live_warps: u32,
    pub exited: bool,
}

pub struct Cluster {
    pub number: u32,
    pub ctas: Vec<Cta>,
    pub barrier: Barrier,
    pub pending: Vec<super::asynchronous::Pending>,
    /// tcgen05 operations, in the order of issue of each warp.
    pub tensor: Vec<VecDeque<Issue>>,
    /// What each warp has issued, by number.
    pub tensor_operations: Vec<Vec<Option<crate::tcgen05::Operation>>>,
    /// Warps of a pair that allocate together: even rank, columns, ranks that have asked, result.
    pub pair_requests: Vec<(usize, u32, [bool; 2], Option<u32>)>,
    /// Counts what may let a waiting warp go on.
    pub changes: u64,
    pub agents: Vec<String>,
}

impl Cluster {
    pub fn new_agent(&mut self, name: String) -> Agent {
        self.agents.push(name);
        self.agents.len() as u32 - 1
    }

    pub fn agent_name(&self, epoch: Epoch) -> String {
        super::shared::name(&self.agents, epoch)
    }

    pub fn done(&self) -> bool {
        self.ctas.iter().all(|cta| cta.live_warps == 0)
            && self.pending.is_empty()
            && self.tensor.iter().all(VecDeque::is_empty)
    }
}

impl Barrier {
    /// Ends a generation.
    pub fn complete(&mut self) {
        self.generation += 1;
        self.released = std::mem::take(&mut self.knows);
        (self.arrived, self.needed, self.reduce) = (0, 0, false);
        self.result = self.value;
        self.warps.clear();
    }
}
