//! Seeds: every launch has an interleaving of its own, drawn from `CUDASIM_SEED`, its number, and what the program says.

use super::call;

/// Where the seeds of launches come from.
#[derive(Clone, Copy, Debug)]
pub struct Interleaving {
    /// `CUDASIM_SEED`.
    first: u64,
    /// What is added to it.
    repetition: u64,
    /// Tells apart what begins with the same seed.
    salt: u64,
    /// Launches before it began.
    before: u32,
}

impl Interleaving {
    pub fn new(first: u64) -> Self {
        Interleaving { first, repetition: 0, salt: 0, before: 0 }
    }

    /// The same seeds again, from another first one, for what comes after `launches`.
    fn again(self, repetition: u64, salt: u64, launches: u32) -> Self {
        Interleaving { repetition, salt, before: launches, ..self }
    }

    /// The seed that repeats a launch, and its number counted from there.
    pub fn name(&self, launches: u32) -> (u64, u32) {
        (self.first.wrapping_add(self.repetition), launches - self.before)
    }

    /// The seed of a launch alone.
    pub fn of(&self, launches: u32) -> u64 {
        let (seed, launch) = self.name(launches);
        seed.wrapping_mul(0x1_0001).wrapping_add(launch.into()) ^ self.salt
    }
}

/// An extension for test programs, found by `cuGetProcAddress`: what is launched from here on interleaves as if a process
/// with `CUDASIM_SEED + repetition` began with it, whatever ran before. `salt` gives two parts of a program different
/// interleavings.
#[unsafe(no_mangle)]
extern "C" fn cudasimInterleave(repetition: u64, salt: u64) -> cudarc::driver::sys::CUresult {
    call("cudasimInterleave", |driver| {
        driver.interleaving = driver.interleaving.again(repetition, salt, driver.launches);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The third launch of a later repetition, after many others, is the third launch of a process with that seed.
    #[test]
    fn a_repetition_is_a_process_of_its_own() {
        let later = Interleaving::new(7).again(5, 99, 1000);
        let alone = Interleaving::new(12).again(0, 99, 0);
        assert_eq!((later.of(1003), later.name(1003)), (alone.of(3), (12, 3)));
        assert_eq!(Interleaving::new(7).of(4), 7 * 0x1_0001 + 4);
        let others = [later.of(1004), Interleaving::new(12).of(3), Interleaving::new(7).again(5, 98, 1000).of(1003)];
        assert!(!others.contains(&later.of(1003)));
    }
}
