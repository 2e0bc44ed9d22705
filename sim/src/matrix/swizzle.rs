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

    /// As [`Swizzle::apply`], for a pattern that begins `base_offset` 128-byte lines after a multiple of its size (the
    /// base offset of matrix descriptors). On an H200 the lines are counted from there, in all modes of wgmma.
    #[inline]
    pub fn apply_from(self, address: u32, base_offset: u32) -> u32 {
        let moved = address.wrapping_sub(128 * base_offset);
        self.apply(moved) ^ moved ^ address
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

    /// Halves that an H200 read for k = 0 and k = 8 of eight rows, the first row at `start`, from memory that holds
    /// its own index.
    #[test]
    fn base_offsets_count_lines() {
        let read = |start: u32, base: u32, k: u32| {
            (0..8).map(|n| Swizzle::B128.apply_from(start + 128 * n + 2 * k, base) / 2).collect::<Vec<_>>()
        };
        assert_eq!(read(0, 1, 0), [56, 64, 136, 208, 280, 352, 424, 496]);
        assert_eq!(read(0, 1, 8), [48, 72, 128, 216, 272, 360, 416, 504]);
        assert_eq!(read(128, 1, 0), [64, 136, 208, 280, 352, 424, 496, 568]);
        assert_eq!(read(128, 1, 8), [72, 128, 216, 272, 360, 416, 504, 560]);
        for mode in ALL {
            assert!((0..4096).all(|address| mode.apply_from(address, 0) == mode.apply(address)));
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
