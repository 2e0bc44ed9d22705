//! The mbarrier object (PTX ISA 9.7.13.15): arrivals and transactions of a phase.

use crate::error::{Fault, Kind, Result};
use crate::map::Map;

/// Largest count of arrivals and largest magnitude of the transaction count.
pub const MAX_COUNT: u32 = (1 << 20) - 1;
/// Bytes of an object, which is also its alignment.
pub const SIZE: u32 = 8;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mbarrier {
    /// Completed phases; the parity of the current one is the lowest bit.
    pub phase: u64,
    /// Arrivals that a phase starts with.
    pub expected: u32,
    /// Arrivals missing in the current phase.
    pub pending: u32,
    /// Bytes (or units) announced minus those delivered in the current phase.
    pub tx: i32,
}

/// What an operation on the object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// State before it: names the phase and holds the arrivals that it missed.
    pub state: u64,
    /// The operation completed the phase.
    pub completed: bool,
}

fn misuse<T>(message: String) -> Result<T> {
    Fault::err(Kind::Mbarrier, message)
}

fn count_in_range(count: u32, what: &str) -> Result<()> {
    if (1..=MAX_COUNT).contains(&count) {
        return Ok(());
    }
    misuse(format!("{what} of {count}: a count is 1 to {MAX_COUNT}"))
}

impl Mbarrier {
    /// `mbarrier.init`.
    ///
    /// # Errors
    /// A count outside 1 to 2^20 - 1.
    pub fn new(count: u32) -> Result<Self> {
        count_in_range(count, "init with an arrival count")?;
        Ok(Mbarrier { phase: 0, expected: count, pending: count, tx: 0 })
    }

    /// The `state` operand that names the current phase.
    pub fn state(&self) -> u64 {
        self.phase << 20 | self.pending as u64
    }

    /// Arrivals that were missing when the state was taken (`mbarrier.pending_count`).
    pub fn pending_count(state: u64) -> u32 {
        state as u32 & MAX_COUNT
    }

    /// `mbarrier.arrive`.
    ///
    /// # Errors
    /// A count outside its range, or more arrivals than the phase still expects.
    pub fn arrive(&mut self, count: u32) -> Result<Arrival> {
        self.arrive_after(0, count)
    }

    /// `mbarrier.arrive.expect_tx`: announces `tx` first, then arrives once.
    ///
    /// # Errors
    /// As [`Mbarrier::arrive`] and [`Mbarrier::expect_tx`].
    pub fn arrive_expect_tx(&mut self, tx: u32) -> Result<Arrival> {
        self.arrive_after(tx, 1)
    }

    /// `mbarrier.arrive.noComplete`.
    ///
    /// # Errors
    /// As [`Mbarrier::arrive`]; also if it would complete the phase.
    pub fn arrive_no_complete(&mut self, count: u32) -> Result<Arrival> {
        if count >= self.pending {
            return misuse(format!(
                "arrive.noComplete of {count} with {} arrivals pending would complete the phase",
                self.pending
            ));
        }
        self.arrive(count)
    }

    /// `mbarrier.arrive_drop`, with `tx` bytes announced first.
    ///
    /// # Errors
    /// As [`Mbarrier::arrive_expect_tx`].
    pub fn arrive_drop(&mut self, tx: u32, count: u32) -> Result<Arrival> {
        count_in_range(count, "arrive_drop")?;
        if count > self.pending {
            return self.over_arrival(count);
        }
        // Before the arrival, because the phase that it completes is followed by the smaller one.
        self.expected -= count;
        self.arrive_after(tx, count)
    }

    fn arrive_after(&mut self, tx: u32, count: u32) -> Result<Arrival> {
        count_in_range(count, "arrive")?;
        if count > self.pending {
            return self.over_arrival(count);
        }
        let state = self.state();
        self.add_tx(tx as i64)?;
        self.pending -= count;
        Ok(Arrival { state, completed: self.complete() })
    }

    fn over_arrival<T>(&self, count: u32) -> Result<T> {
        misuse(format!(
            "{count} arrivals in phase {}, which expects {} and misses {} (transaction count {})",
            self.phase, self.expected, self.pending, self.tx
        ))
    }

    /// `mbarrier.expect_tx`.
    ///
    /// # Errors
    /// A transaction count beyond 2^20 - 1.
    pub fn expect_tx(&mut self, tx: u32) -> Result<()> {
        self.add_tx(tx as i64)
    }

    /// `mbarrier.complete_tx`, and what ends an asynchronous copy. True if that completed the phase.
    ///
    /// # Errors
    /// A transaction count below -(2^20 - 1).
    pub fn complete_tx(&mut self, tx: u32) -> Result<bool> {
        self.add_tx(-(tx as i64))?;
        Ok(self.complete())
    }

    /// First half of `cp.async.mbarrier.arrive`: one more arrival is pending until the copies finish. With `.noinc` the
    /// program has counted it at initialisation and this half is left out; the second half is [`Mbarrier::arrive`].
    ///
    /// # Errors
    /// A pending count beyond 2^20 - 1.
    pub fn increment_pending(&mut self) -> Result<()> {
        if self.pending == MAX_COUNT {
            return misuse(format!("cp.async.mbarrier.arrive with {MAX_COUNT} arrivals pending"));
        }
        self.pending += 1;
        Ok(())
    }

    fn add_tx(&mut self, tx: i64) -> Result<()> {
        let sum = self.tx as i64 + tx;
        if sum.unsigned_abs() > MAX_COUNT as u64 {
            return misuse(format!(
                "transaction count {} {} {} in phase {} leaves its range of {MAX_COUNT}",
                self.tx,
                if tx < 0 { '-' } else { '+' },
                tx.abs(),
                self.phase
            ));
        }
        self.tx = sum as i32;
        Ok(())
    }

    fn complete(&mut self) -> bool {
        let done = self.pending == 0 && self.tx == 0;
        if done {
            self.phase += 1;
            self.pending = self.expected;
        }
        done
    }

    /// `test_wait.parity` and `try_wait.parity`: whether the phase of this parity is complete. A fresh object answers
    /// true to parity 1, as the first wait of a producer relies on.
    ///
    /// # Errors
    /// A parity that is neither 0 nor 1.
    pub fn test_parity(&mut self, parity: u32) -> Result<bool> {
        if parity > 1 {
            return misuse(format!("wait for parity {parity}: a parity is 0 or 1"));
        }
        Ok(self.phase as u32 & 1 != parity)
    }

    /// `test_wait` and `try_wait` by state.
    ///
    /// # Errors
    /// A state that names neither the current phase nor the one before it.
    pub fn test_state(&mut self, state: u64) -> Result<bool> {
        let phase = state >> 20;
        if phase != self.phase && phase + 1 != self.phase {
            return misuse(format!("wait with the state of phase {phase} in phase {}", self.phase));
        }
        Ok(phase < self.phase)
    }

    /// What is wrong with leaving the object like this at the end of a CTA.
    ///
    /// # Errors
    /// [`Kind::Exit`] if transactions are open, which are either announced and never delivered, or the reverse.
    pub fn check_exit(&self) -> Result<()> {
        let message = match self.tx {
            0 => return Ok(()),
            1.. => format!("{} announced bytes were not delivered in phase {}", self.tx, self.phase),
            _ => format!("{} delivered bytes were not announced in phase {}", -self.tx, self.phase),
        };
        Fault::err(Kind::Exit, message)
    }
}

/// The live objects of a CTA, by their offset in shared memory.
#[derive(Clone, Debug, Default)]
pub struct Mbarriers {
    objects: Map<u32, Mbarrier>,
}

impl Mbarriers {
    /// `mbarrier.init` at `offset`.
    ///
    /// # Errors
    /// [`Kind::Misaligned`]; [`Kind::Mbarrier`] over a live object or with a bad count.
    pub fn init(&mut self, offset: u32, count: u32) -> Result<()> {
        aligned(offset)?;
        if let Some(live) = self.objects.get(&offset) {
            return misuse(format!(
                "init over the live object at {offset:#x}, in phase {}: inval comes first",
                live.phase
            ));
        }
        self.objects.insert(offset, Mbarrier::new(count)?);
        Ok(())
    }

    /// `mbarrier.inval` at `offset`.
    ///
    /// # Errors
    /// As [`Mbarriers::get`].
    pub fn inval(&mut self, offset: u32) -> Result<()> {
        self.get(offset)?;
        self.objects.remove(&offset);
        Ok(())
    }

    /// The object at `offset`.
    ///
    /// # Errors
    /// [`Kind::Misaligned`]; [`Kind::Mbarrier`] where no live object is.
    pub fn get(&mut self, offset: u32) -> Result<&mut Mbarrier> {
        aligned(offset)?;
        match self.objects.get_mut(&offset) {
            Some(object) => Ok(object),
            None => misuse(format!("no initialised mbarrier at shared offset {offset:#x}")),
        }
    }

    /// Refuses an ordinary access to `bytes` at `offset` that touches a live object.
    ///
    /// # Errors
    /// [`Kind::Mbarrier`].
    pub fn check_access(&self, offset: u32, bytes: u32) -> Result<()> {
        let (first, last) = (offset / SIZE, offset.saturating_add(bytes.saturating_sub(1)) / SIZE);
        let touched = if (last - first) as usize > self.objects.len() {
            self.objects.keys().copied().find(|at| (first..=last).contains(&(at / SIZE)))
        } else {
            (first..=last).map(|at| at * SIZE).find(|at| self.objects.contains_key(at))
        };
        match touched {
            Some(at) if bytes > 0 => {
                misuse(format!("ordinary access to {bytes} bytes at {offset:#x} touches the live mbarrier at {at:#x}"))
            }
            _ => Ok(()),
        }
    }

    /// Live objects with their offsets, in ascending order.
    pub fn live(&self) -> Vec<(u32, &Mbarrier)> {
        let mut all: Vec<_> = self.objects.iter().map(|(at, object)| (*at, object)).collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }
}

fn aligned(offset: u32) -> Result<()> {
    if offset.is_multiple_of(SIZE) {
        return Ok(());
    }
    Fault::err(Kind::Misaligned, format!("mbarrier at shared offset {offset:#x}: objects are {SIZE}-byte aligned"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_needs_arrivals_and_bytes() {
        let mut b = Mbarrier::new(2).unwrap();
        assert!(!b.arrive_expect_tx(128).unwrap().completed);
        assert!(!b.arrive(1).unwrap().completed);
        assert!(!b.complete_tx(64).unwrap());
        assert!(!b.test_parity(0).unwrap());
        assert!(b.complete_tx(64).unwrap());
        assert_eq!((b.phase, b.pending, b.tx), (1, 2, 0));
        assert!(b.test_parity(0).unwrap() && !b.test_parity(1).unwrap());
    }

    #[test]
    fn bytes_may_come_before_their_announcement() {
        let mut b = Mbarrier::new(1).unwrap();
        assert!(!b.complete_tx(32).unwrap());
        assert_eq!(b.tx, -32);
        assert!(b.arrive_expect_tx(32).unwrap().completed);
    }

    #[test]
    fn a_fresh_object_has_completed_the_phase_before() {
        let mut b = Mbarrier::new(1).unwrap();
        assert!(b.test_parity(1).unwrap() && !b.test_parity(0).unwrap());
        assert_eq!(b.test_parity(2).unwrap_err().kind, Kind::Mbarrier);
    }

    #[test]
    fn counts_have_limits() {
        assert!(Mbarrier::new(0).is_err() && Mbarrier::new(1 << 20).is_err());
        let mut b = Mbarrier::new(MAX_COUNT).unwrap();
        assert!(b.arrive(0).is_err());
        assert!(b.increment_pending().is_err());
        assert!(b.arrive(MAX_COUNT).unwrap().completed);
        let mut b = Mbarrier::new(2).unwrap();
        assert!(b.arrive(3).is_err());
        assert!(b.expect_tx(MAX_COUNT).is_ok() && b.expect_tx(1).is_err());
        assert!(b.complete_tx(MAX_COUNT).is_ok() && b.complete_tx(MAX_COUNT).is_ok() && b.complete_tx(1).is_err());
    }

    #[test]
    fn arrivals_beyond_a_phase_that_waits_for_bytes_are_refused() {
        let mut b = Mbarrier::new(1).unwrap();
        b.arrive_expect_tx(16).unwrap();
        assert!(b.arrive(1).unwrap_err().message.contains("expects 1 and misses 0"));
        assert!(b.check_exit().unwrap_err().message.contains("16 announced"));
        b.complete_tx(16).unwrap();
        assert!(b.check_exit().is_ok());
    }

    #[test]
    fn dropping_lowers_later_phases() {
        let mut b = Mbarrier::new(3).unwrap();
        assert!(!b.arrive_drop(0, 1).unwrap().completed);
        assert!(b.arrive(2).unwrap().completed);
        assert_eq!((b.expected, b.pending), (2, 2));
        assert!(b.arrive_drop(0, 2).unwrap().completed);
        assert!(b.arrive(1).is_err());
    }

    #[test]
    fn states_name_phases() {
        let mut b = Mbarrier::new(2).unwrap();
        let first = b.arrive_no_complete(1).unwrap();
        assert_eq!(Mbarrier::pending_count(first.state), 2);
        assert!(b.arrive_no_complete(1).is_err());
        assert!(!b.test_state(first.state).unwrap());
        let second = b.arrive(1).unwrap();
        assert!(second.completed && b.test_state(second.state).unwrap());
        b.arrive(2).unwrap();
        assert!(b.test_state(first.state).is_err());
    }

    #[test]
    fn cp_async_adds_an_arrival_of_its_own() {
        let mut b = Mbarrier::new(1).unwrap();
        b.increment_pending().unwrap();
        assert!(!b.arrive(1).unwrap().completed);
        assert!(b.arrive(1).unwrap().completed);
        assert_eq!(b.pending, 1);
    }

    #[test]
    fn objects_are_born_and_die() {
        let mut all = Mbarriers::default();
        assert_eq!(all.init(12, 1).unwrap_err().kind, Kind::Misaligned);
        assert_eq!(all.get(16).unwrap_err().kind, Kind::Mbarrier);
        all.init(16, 1).unwrap();
        assert!(all.init(16, 1).is_err());
        assert!(all.check_access(0, 16).is_ok() && all.check_access(24, 64).is_ok());
        assert!(
            all.check_access(23, 1).is_err() && all.check_access(0, 4096).is_err() && all.check_access(8, 9).is_err()
        );
        assert_eq!(all.live().len(), 1);
        all.inval(16).unwrap();
        assert!(all.inval(16).is_err() && all.check_access(0, 4096).is_ok());
        all.init(16, 2).unwrap();
    }
}
