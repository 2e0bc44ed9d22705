//! Maps with small integers as keys, looked up at every turn: what an attacker could do to them does not matter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map that hashes quickly, and in every process alike.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Multiplicative>>;

/// Fibonacci hashing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multiplicative(u64);

impl Hasher for Multiplicative {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// Tables take their slots from the low bits, which the product mixes least.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}
