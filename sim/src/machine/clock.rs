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

/// What is known of an agent: everything until `full`, and until `clock` what these lanes did.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    full: u32,
    clock: u32,
    lanes: u32,
}

impl Known {
    fn covers(self, epoch: Epoch) -> bool {
        epoch.clock() <= self.full
            || epoch.clock() <= self.clock && self.lanes.checked_shr(epoch.lane()).is_some_and(|lanes| lanes & 1 == 1)
    }

    fn join(&mut self, other: Known) {
        let full = self.full.max(other.full);
        let lanes = |known: Known| if known.clock > full { known.lanes } else { 0 };
        // Lanes that were released at different moments count until the later one: a race may be missed, none invented.
        *self = Known { full, clock: self.clock.max(other.clock), lanes: lanes(*self) | lanes(other) };
        if self.lanes == u32::MAX {
            self.full = self.clock;
        }
    }

    fn meet(&mut self, other: Known) {
        self.full = self.full.min(other.full);
        self.clock = self.clock.min(other.clock);
        self.lanes &= other.lanes;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<Known>);

impl Clock {
    fn entry(&mut self, agent: Agent) -> &mut Known {
        if self.0.len() <= agent as usize {
            self.0.resize(agent as usize + 1, Known::default());
        }
        &mut self.0[agent as usize]
    }

    /// Everything that the agent did until `clock` is known.
    pub fn raise(&mut self, agent: Agent, clock: u32) {
        self.share(agent, u32::MAX, clock);
    }

    /// What these lanes of a warp did until `clock` is known.
    pub fn share(&mut self, agent: Agent, lanes: u32, clock: u32) {
        self.entry(agent).join(Known { full: 0, clock, lanes });
    }

    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Known::default());
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.join(*other);
        }
    }

    /// Keeps what both know.
    pub fn meet(&mut self, other: &Clock) {
        self.0.truncate(other.0.len());
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.meet(*other);
        }
    }

    pub fn covers(&self, epoch: Epoch) -> bool {
        self.0.get(epoch.agent() as usize).is_some_and(|known| known.covers(epoch))
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
    }
}
