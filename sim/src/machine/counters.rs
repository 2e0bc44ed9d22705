//! What a launch did, for the report.

/// Sums over one warp of each CTA.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Warp instructions.
    pub instructions: u64,
    pub global_read: u64,
    pub global_written: u64,
    pub shared_read: u64,
    pub shared_written: u64,
    pub bulk_loaded: u64,
    pub bulk_stored: u64,
    pub matrix_flops: u64,
    /// Waits that found nothing yet, by kind.
    pub mbarrier_waits: u64,
    pub barrier_waits: u64,
    /// Waits for bulk copies, matrix products, registers and Tensor Memory.
    pub other_waits: u64,
    /// Further passes that shared memory needs because lanes meet in a bank.
    pub bank_conflicts: u64,
}

impl Work {
    /// The columns of the table.
    pub fn columns(&self) -> [(&'static str, u64); 12] {
        [
            ("instr", self.instructions),
            ("ld.global", self.global_read),
            ("st.global", self.global_written),
            ("bulk in", self.bulk_loaded),
            ("bulk out", self.bulk_stored),
            ("ld.shared", self.shared_read),
            ("st.shared", self.shared_written),
            ("conflicts", self.bank_conflicts),
            ("mma flop", self.matrix_flops),
            ("mbarrier", self.mbarrier_waits),
            ("barrier", self.barrier_waits),
            ("other", self.other_waits),
        ]
    }

    fn add(&mut self, other: &Work) {
        self.instructions += other.instructions;
        self.global_read += other.global_read;
        self.global_written += other.global_written;
        self.shared_read += other.shared_read;
        self.shared_written += other.shared_written;
        self.bulk_loaded += other.bulk_loaded;
        self.bulk_stored += other.bulk_stored;
        self.matrix_flops += other.matrix_flops;
        self.mbarrier_waits += other.mbarrier_waits;
        self.barrier_waits += other.barrier_waits;
        self.other_waits += other.other_waits;
        self.bank_conflicts += other.bank_conflicts;
    }

    /// Which kinds of work there were.
    fn kinds(&self) -> u32 {
        let waits = 9;
        self.columns()[..waits].iter().fold(0, |kinds, (_, value)| kinds << 1 | u32::from(*value > 0))
    }
}

/// What a launch did, by the index of the warp in its CTA.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub clusters: u64,
    /// An instruction that was left out would have been executed.
    pub omitted: bool,
    pub warps: Vec<Work>,
    /// By instruction of the kernel, whether a lane has executed it.
    pub reached: Vec<bool>,
}

/// Neighbouring warps of a warpgroup that did the same kinds of work: what a kernel author calls a role.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    pub first: usize,
    pub last: usize,
    pub work: Work,
}

impl Counters {
    /// The counters of a warp.
    pub fn of(&mut self, warp: u32) -> &mut Work {
        let at = warp as usize;
        if self.warps.len() <= at {
            self.warps.resize(at + 1, Work::default());
        }
        &mut self.warps[at]
    }

    pub fn add(&mut self, other: &Counters) {
        self.clusters += other.clusters;
        for (warp, work) in (0..).zip(&other.warps) {
            self.of(warp).add(work);
        }
        self.reached.resize(self.reached.len().max(other.reached.len()), false);
        self.reached.iter_mut().zip(&other.reached).for_each(|(reached, other)| *reached |= other);
    }

    pub fn total(&self) -> Work {
        self.warps.iter().fold(Work::default(), |mut sum, work| {
            sum.add(work);
            sum
        })
    }

    pub fn roles(&self) -> Vec<Role> {
        let mut roles: Vec<Role> = Vec::new();
        for (warp, work) in self.warps.iter().enumerate() {
            match roles.last_mut() {
                Some(role) if warp % 4 != 0 && role.work.kinds() == work.kinds() => {
                    role.last = warp;
                    role.work.add(work);
                }
                _ => roles.push(Role { first: warp, last: warp, work: *work }),
            }
        }
        roles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_of_one_kind_are_a_role() {
        let mut counters = Counters::default();
        for warp in 0..8 {
            counters.of(warp).instructions = 10;
        }
        counters.of(0).bulk_loaded = 64;
        counters.of(1).mbarrier_waits = 3;
        counters.of(5).bank_conflicts = 1;
        counters.reached = vec![true, false, false];
        let twice = Counters { reached: vec![false, true, false], ..counters.clone() };
        counters.add(&twice);
        assert_eq!(counters.reached, [true, true, false]);
        let roles: Vec<_> =
            counters.roles().iter().map(|r| (r.first, r.last, r.work.instructions, r.work.bulk_loaded)).collect();
        assert_eq!(roles, [(0, 0, 20, 128), (1, 3, 60, 0), (4, 4, 20, 0), (5, 5, 20, 0), (6, 7, 40, 0)]);
        assert_eq!(counters.total().instructions, 160);
    }
}
