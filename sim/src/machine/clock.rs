//! Vector clocks: what has happened before what. Agents are the warps of a cluster, and the asynchronous operations that
//! complete together: those of one mbarrier, the bulk groups of a warp, the wgmma groups of a warpgroup.
//!
//! The lanes of a warp share its clock, but not what they know of each other: until the warp meets (`bar.warp.sync`, a
//! barrier), what a lane did is known to itself and to whom that lane has released it.

/// Index of an agent within its cluster.
pub type Agent = u32;

/// In place of a lane: the agent as a whole, or several of its lanes.
pub const WHOLE: u32 = 32;

/// A point in the life of an agent; clocks start at 1, so 0 is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

impl Epoch {
    pub fn new(agent: Agent, clock: u32) -> Self {
        Self::of_lane(agent, WHOLE, clock)
    }

    pub fn of_lane(agent: Agent, lane: u32, clock: u32) -> Self {
        Epoch(u64::from(agent) << 40 | u64::from(lane) << 32 | u64::from(clock))
    }

    pub fn never(self) -> bool {
        self.0 == 0
    }

    pub fn agent(self) -> Agent {
        (self.0 >> 40) as u32
    }

    pub fn lane(self) -> u32 {
        (self.0 >> 32) as u32 & 255
    }

    pub fn clock(self) -> u32 {
        self.0 as u32
    }

    /// Whether program order alone puts one of the two before the other.
    pub fn same_thread(self, other: Epoch) -> bool {
        self.0 >> 32 == other.0 >> 32
    }

    /// As the agent's, whichever lane it was.
    pub fn whole(self) -> Self {
        Self::new(self.agent(), self.clock())
    }
}

/// What is known of a warp beyond what is known of all its lanes: what these did until `clock`.
#[derive(Clone, Copy, Debug)]
struct Part {
    agent: Agent,
    clock: u32,
    lanes: u32,
}

/// Until when everything that an agent did is known, and parts of what came later.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    full: Vec<u32>,
    /// At most one of each agent, later than its `full`; mostly none.
    parts: Vec<Part>,
}

impl Clock {
    fn full(&self, agent: Agent) -> u32 {
        self.full.get(agent as usize).copied().unwrap_or(0)
    }

    /// Everything that the agent did until `clock` is known.
    pub fn raise(&mut self, agent: Agent, clock: u32) {
        if self.full.len() <= agent as usize {
            self.full.resize(agent as usize + 1, 0);
        }
        let slot = &mut self.full[agent as usize];
        *slot = clock.max(*slot);
        self.drop_known();
    }

    /// What these lanes of a warp did until `clock` is known.
    pub fn share(&mut self, agent: Agent, lanes: u32, clock: u32) {
        if clock <= self.full(agent) || lanes == 0 {
            return;
        }
        // Lanes that were released at different moments count until the later one: a race may be missed, none invented.
        let part = match self.parts.iter_mut().find(|part| part.agent == agent) {
            Some(part) => {
                *part = Part { agent, clock: part.clock.max(clock), lanes: part.lanes | lanes };
                *part
            }
            None => {
                self.parts.push(Part { agent, clock, lanes });
                Part { agent, clock, lanes }
            }
        };
        if part.lanes == u32::MAX {
            self.raise(agent, part.clock);
        }
    }

    fn drop_known(&mut self) {
        let full = &self.full;
        self.parts.retain(|part| full.get(part.agent as usize).is_none_or(|&full| part.clock > full));
    }

    pub fn join(&mut self, other: &Clock) {
        if self.full.len() < other.full.len() {
            self.full.resize(other.full.len(), 0);
        }
        for (own, other) in self.full.iter_mut().zip(&other.full) {
            *own = (*own).max(*other);
        }
        self.drop_known();
        for part in &other.parts {
            self.share(part.agent, part.lanes, part.clock);
        }
    }

    /// Keeps what both know.
    pub fn meet(&mut self, other: &Clock) {
        let known = |clock: &Clock, part: &Part| match clock.parts.iter().find(|p| p.agent == part.agent) {
            _ if part.clock <= clock.full(part.agent) => Some(*part),
            Some(p) => Some(Part { clock: p.clock.min(part.clock), lanes: p.lanes & part.lanes, ..*part }),
            None => None,
        };
        let own: Vec<Part> = self.parts.iter().filter_map(|part| known(other, part)).collect();
        let rest: Vec<Part> = other.parts.iter().filter_map(|part| known(self, part)).collect();
        self.full.truncate(other.full.len());
        for (own, other) in self.full.iter_mut().zip(&other.full) {
            *own = (*own).min(*other);
        }
        self.parts.clear();
        own.iter().chain(&rest).for_each(|part| self.share(part.agent, part.lanes, part.clock));
    }

    pub fn covers(&self, epoch: Epoch) -> bool {
        let (agent, clock) = (epoch.agent(), epoch.clock());
        clock <= self.full(agent)
            || epoch.lane() < WHOLE
                && self.parts.iter().any(|p| p.agent == agent && clock <= p.clock && p.lanes >> epoch.lane() & 1 == 1)
    }
}

/// What a warp knows: everything that happened before, and which part of it a proxy fence has published.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    pub all: Clock,
    /// Generic accesses that the async proxy may follow.
    pub fenced: Clock,
    /// What is known of other clusters, by their numbers; ascending.
    pub far: Vec<(u32, Clock)>,
}

impl Knowledge {
    pub fn join(&mut self, other: &Knowledge) {
        self.all.join(&other.all);
        self.fenced.join(&other.fenced);
        other.far.iter().for_each(|(cluster, clock)| self.learn(*cluster, clock));
    }

    /// Keeps what both know.
    pub fn meet(&mut self, other: &Knowledge) {
        self.all.meet(&other.all);
        self.fenced.meet(&other.fenced);
        self.far.retain_mut(|(cluster, clock)| match other.of(*cluster) {
            Some(known) => {
                clock.meet(known);
                true
            }
            None => false,
        });
    }

    /// What is known of another cluster.
    pub fn of(&self, cluster: u32) -> Option<&Clock> {
        let at = self.far.binary_search_by_key(&cluster, |(own, _)| *own).ok()?;
        Some(&self.far[at].1)
    }

    /// Adds what is known of another cluster.
    pub fn learn(&mut self, cluster: u32, clock: &Clock) {
        match self.far.binary_search_by_key(&cluster, |(own, _)| *own) {
            Ok(at) => self.far[at].1.join(clock),
            Err(at) => self.far.insert(at, (cluster, clock.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_known_one_by_one_until_all_are() {
        let mut clock = Clock::default();
        clock.share(3, 1, 5);
        assert!(clock.covers(Epoch::of_lane(3, 0, 5)) && !clock.covers(Epoch::of_lane(3, 1, 5)));
        assert!(!clock.covers(Epoch::new(3, 5)) && !clock.covers(Epoch::of_lane(3, 0, 6)));
        let mut rest = Clock::default();
        rest.share(3, !1, 6);
        clock.join(&rest);
        assert!(clock.covers(Epoch::new(3, 6)) && !clock.covers(Epoch::new(3, 7)));
        clock.raise(3, 9);
        clock.share(3, 2, 10);
        assert!(clock.covers(Epoch::of_lane(3, 7, 9)) && clock.covers(Epoch::of_lane(3, 1, 10)));
        assert!(!clock.covers(Epoch::of_lane(3, 7, 10)));
    }

    #[test]
    fn what_both_know() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.raise(0, 4);
        b.raise(0, 2);
        b.raise(1, 1);
        a.meet(&b);
        assert!(a.covers(Epoch::new(0, 2)) && !a.covers(Epoch::new(0, 3)) && !a.covers(Epoch::new(1, 1)));
        // A part that the other knows as a whole, and one that both know in part.
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.share(0, 1, 5);
        b.raise(0, 6);
        a.share(1, 3, 2);
        b.share(1, 6, 3);
        b.share(2, 1, 1);
        a.meet(&b);
        assert!(a.covers(Epoch::of_lane(0, 0, 5)) && !a.covers(Epoch::of_lane(0, 1, 1)));
        assert!(a.covers(Epoch::of_lane(1, 1, 2)) && !a.covers(Epoch::of_lane(1, 1, 3)));
        assert!(!a.covers(Epoch::of_lane(1, 0, 1)) && !a.covers(Epoch::of_lane(2, 0, 1)));
    }
}
