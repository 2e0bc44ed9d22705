//! Vector clocks: what has happened before what. Agents are the warps of a cluster, and the asynchronous operations that
//! complete together: those of one mbarrier, the bulk groups of a warp, the wgmma groups of a warpgroup.

/// Index of an agent within its cluster.
pub type Agent = u32;

/// A point in the life of an agent; clocks start at 1, so 0 is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

impl Epoch {
    pub fn new(agent: Agent, clock: u32) -> Self {
        Epoch(u64::from(agent) << 32 | u64::from(clock))
    }

    pub fn never(self) -> bool {
        self.0 == 0
    }

    pub fn agent(self) -> Agent {
        (self.0 >> 32) as u32
    }

    pub fn clock(self) -> u32 {
        self.0 as u32
    }
}

#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<u32>);

impl Clock {
    pub fn get(&self, agent: Agent) -> u32 {
        self.0.get(agent as usize).copied().unwrap_or(0)
    }

    pub fn raise(&mut self, agent: Agent, clock: u32) {
        if self.0.len() <= agent as usize {
            self.0.resize(agent as usize + 1, 0);
        }
        let slot = &mut self.0[agent as usize];
        *slot = clock.max(*slot);
    }

    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Keeps what both know.
    pub fn meet(&mut self, other: &Clock) {
        self.0.truncate(other.0.len());
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).min(*other);
        }
    }

    pub fn covers(&self, epoch: Epoch) -> bool {
        epoch.clock() <= self.get(epoch.agent())
    }
}

/// What a warp knows: everything that happened before, and which part of it a proxy fence has published.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    pub all: Clock,
    /// Generic accesses that the async proxy may follow.
    pub fenced: Clock,
}

impl Knowledge {
    pub fn join(&mut self, other: &Knowledge) {
        self.all.join(&other.all);
        self.fenced.join(&other.fenced);
    }

    /// Keeps what both know.
    pub fn meet(&mut self, other: &Knowledge) {
        self.all.meet(&other.all);
        self.fenced.meet(&other.fenced);
    }

    /// Marks everything known as published.
    pub fn fence(&mut self) {
        self.fenced.join(&self.all.clone());
    }
}
