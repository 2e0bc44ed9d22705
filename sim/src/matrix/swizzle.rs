//! Swizzle modes (PTX ISA 5.5.7 and 9.7.15.5.1.2): 16-byte chunks of a 128-byte line change places.

/// How a tile is permuted in shared memory. Every mode is an involution on absolute shared addresses that stays within
/// one 128-byte line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// No permutation.
    #[default]
    None,
    /// Span of 32 bytes, pattern of 256.
    B32,
    /// Span of 64 bytes, pattern of 512.
    B64,
    /// Span of 128 bytes, pattern of 1024.
    B128,
    /// Span of 128 bytes in atoms of 32, pattern of 512 (sm_100).
    B128Atom32,
    /// As `B128Atom32`, and the 8-byte halves of each chunk change places on odd lines (which lines is not
    /// established).
    B128Atom32Flip8,
    /// Span of 128 bytes in atoms of 64, pattern of 256 (sm_100).
    B128Atom64,
}

impl Swizzle {
    /// Where the byte at `address` of the plain tile lies.
    #[inline]
    pub fn apply(self, address: u32) -> u32 {
        match self {
            Swizzle::None => address,
            Swizzle::B32 => address ^ (address >> 3 & 0x10),
            Swizzle::B64 => address ^ (address >> 3 & 0x30),
            Swizzle::B128 => address ^ (address >> 3 & 0x70),
            Swizzle::B128Atom32 => address ^ (address >> 2 & 0x60),
            Swizzle::B128Atom32Flip8 => address ^ (address >> 2 & 0x60) ^ (address >> 4 & 8),
            Swizzle::B128Atom64 => address ^ (address >> 1 & 0x40),
        }
    }

    /// Bytes of a row of the tile; 16 without swizzle.
    pub const fn span(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            _ => 128,
        }
    }

    /// Bytes after which the permutation repeats; a tile that starts at a multiple of it has base offset 0.
    pub const fn pattern(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 | Swizzle::B128Atom64 => 256,
            Swizzle::B64 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 => 512,
            Swizzle::B128 => 1024,
        }
    }

    /// Largest block of bytes that stays contiguous, at most 16.
    pub const fn grain(self) -> u32 {
        if matches!(self, Swizzle::B128Atom32Flip8) { 8 } else { 16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const ALL: [Swizzle; 7] = [
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
    ];

    #[test]
    fn permutes_lines_and_repeats() {
        for mode in ALL {
            for address in (0..8192).step_by(4) {
                let moved = mode.apply(address);
                assert_eq!(mode.apply(moved), address);
                assert_eq!(moved / 128, address / 128);
                assert_eq!(mode.apply(address + mode.pattern()), moved + mode.pattern());
                assert_eq!(moved % mode.grain(), address % mode.grain());
            }
        }
    }

    /// The tables that the ISA prints: chunk order of each line.
    #[test]
    fn follows_the_printed_tables() {
        let line =
            |mode: Swizzle, line: u32| (0..8).map(|c| mode.apply(line * 128 + c * 16) / 16 % 8).collect::<Vec<_>>();
        for row in 0..8 {
            assert_eq!(line(Swizzle::B128, row), (0..8).map(|c| c ^ row).collect::<Vec<_>>());
        }
        assert_eq!(line(Swizzle::B128, 3), [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(line(Swizzle::B64, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(line(Swizzle::B64, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(line(Swizzle::B64, 2), [2, 3, 0, 1, 6, 7, 4, 5]);
        assert_eq!(line(Swizzle::B32, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(line(Swizzle::B32, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(line(Swizzle::B128Atom32, 1), [2, 3, 0, 1, 6, 7, 4, 5]);
        assert_eq!(line(Swizzle::B128Atom32, 2), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(line(Swizzle::B128Atom64, 1), [4, 5, 6, 7, 0, 1, 2, 3]);
    }
}
