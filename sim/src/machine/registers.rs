//! Registers and predicates of a warp, by lanes: values, which of them exist, and when they were touched.

use super::state::Warp;
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Pred, Slot};

/// Lanes of a mask.
pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = (rest != 0).then_some(rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(lane)
    })
}

impl Warp {
    /// The register, if these lanes have a value in it.
    pub fn get(&self, slot: Slot, mask: u32) -> Result<&Lanes> {
        self.check(slot, mask)?;
        self.stamps[slot as usize].set(self.instructions);
        Ok(&self.registers[slot as usize])
    }

    /// Whether these lanes have a value in the register.
    pub fn check(&self, slot: Slot, mask: u32) -> Result<()> {
        if mask & !self.valid[slot as usize] != 0 { self.missing(slot, mask) } else { Ok(()) }
    }

    /// The lanes of `mask` in which a register has a value. Computing with what has none is no fault yet: compilers do
    /// so in lanes whose results nobody uses. It becomes one where it decides something or leaves the warp.
    pub fn having(&self, slot: Slot, mask: u32) -> Result<u32> {
        let valid = self.valid[slot as usize];
        if mask & !valid != 0 && self.busy[slot as usize] != 0 {
            return self.missing(slot, mask);
        }
        self.stamps[slot as usize].set(self.instructions);
        Ok(valid)
    }

    /// As `set`, but only `valid` lanes get a value.
    pub fn set_some(&mut self, slot: Slot, mask: u32, value: &Lanes, valid: u32) -> Result<()> {
        self.set(slot, mask, value)?;
        self.valid[slot as usize] &= valid | !mask;
        Ok(())
    }

    /// A predicate in the lanes that have one, and these.
    pub fn predicate_having(&self, (p, negate): (Pred, bool)) -> (u32, u32) {
        let at = p as usize;
        (if negate { !self.predicates[at] } else { self.predicates[at] }, self.predicates_valid[at])
    }

    pub fn set_predicate_some(&mut self, p: Pred, mask: u32, value: u32, valid: u32) {
        self.set_predicate(p, mask, value);
        self.predicates_valid[p as usize] &= valid | !mask;
    }

    #[cold]
    fn missing<T>(&self, slot: Slot, mask: u32) -> Result<T> {
        if self.busy[slot as usize] != 0 {
            return Fault::err(
                Kind::NotWaited,
                "a register is touched while an asynchronous instruction holds it, before the wait for it",
            );
        }
        let lane = (mask & !self.valid[slot as usize]).trailing_zeros();
        Fault::err(Kind::Uninitialised, format!("lane {lane} reads a register that nothing has written"))
    }

    pub fn set(&mut self, slot: Slot, mask: u32, value: &Lanes) -> Result<()> {
        let at = slot as usize;
        if !self.busy_list.is_empty() && self.busy[at] != 0 {
            return self.missing(slot, mask);
        }
        let register = &mut self.registers[at];
        if mask == u32::MAX {
            *register = *value;
        } else {
            for lane in lanes(mask) {
                register[lane] = value[lane];
            }
        }
        self.valid[at] |= mask;
        self.stamps[at].set(self.instructions);
        Ok(())
    }

    pub fn predicate(&self, (p, negate): (Pred, bool), mask: u32) -> Result<u32> {
        let at = p as usize;
        if mask & !self.predicates_valid[at] != 0 {
            return Fault::err(Kind::Uninitialised, "a predicate that nothing has written");
        }
        Ok(if negate { !self.predicates[at] } else { self.predicates[at] })
    }

    pub fn set_predicate(&mut self, p: Pred, mask: u32, value: u32) {
        let at = p as usize;
        self.predicates[at] = self.predicates[at] & !mask | value & mask;
        self.predicates_valid[at] |= mask;
    }

    /// The one value of a register in these lanes.
    pub fn uniform(&self, slot: Slot, mask: u32, what: &str) -> Result<u64> {
        let register = self.get(slot, mask)?;
        let first = register[mask.trailing_zeros() as usize & 31];
        match lanes(mask).find(|&lane| register[lane] != first) {
            None => Ok(first),
            Some(lane) => Fault::err(
                Kind::Divergence,
                format!("{what} differs among lanes: {first:#x}, but {:#x} in lane {lane}", register[lane]),
            ),
        }
    }
}
