//! Banks of shared memory: 32 of four bytes each; lanes that need different words of one bank take turns.

use super::registers::lanes;
use crate::program::Lanes;

/// Passes beyond the first of each part of the warp. Accesses of 8 bytes go by halves of the warp, of 16 by quarters.
pub fn conflicts(addresses: &Lanes, offset: i64, mask: u32, bytes: u32) -> u64 {
    let bytes = bytes.clamp(4, 16);
    let part = 128 / bytes;
    let unit = |lane: usize| (addresses[lane].wrapping_add_signed(offset) as u32) >> bytes.trailing_zeros();
    let mut further = 0;
    for first in (0..32).step_by(part as usize) {
        let mut rest = mask & ((((1u64 << part) - 1) << first) as u32);
        let mut passes = 0u64;
        while rest != 0 {
            // One unit from each column of banks, for all lanes that want it.
            let mut served = [u32::MAX; 32];
            let mut left = 0;
            for lane in lanes(rest) {
                let unit = unit(lane);
                let column = &mut served[(unit & (part - 1)) as usize];
                if *column == u32::MAX {
                    *column = unit;
                }
                left |= u32::from(*column != unit) << lane;
            }
            rest = left;
            passes += 1;
        }
        further += passes.saturating_sub(1);
    }
    further
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: impl Fn(u64) -> u64, bytes: u32) -> u64 {
        conflicts(&std::array::from_fn(|lane| address(lane as u64)), 0, u32::MAX, bytes)
    }

    #[test]
    fn by_hand() {
        assert_eq!(of(|lane| 4 * lane, 4), 0);
        assert_eq!(of(|_| 64, 4), 0, "a word for all lanes is one pass");
        assert_eq!(of(|lane| 8 * lane, 4), 1);
        assert_eq!(of(|lane| 128 * lane, 4), 31);
        assert_eq!(of(|lane| 132 * lane, 4), 0, "a padded column");
        assert_eq!(of(|lane| 2 * lane, 2), 0, "two lanes in a word");
        assert_eq!(of(|lane| 16 * lane, 16), 0);
        assert_eq!(of(|lane| 128 * lane, 16), 4 * 7);
        assert_eq!(of(|lane| 144 * lane, 16), 0);
        assert_eq!(of(|lane| 16 * lane, 8), 2);
        assert_eq!(conflicts(&std::array::from_fn(|lane| 128 * lane as u64), 4, 0b111, 4), 2);
    }
}
