//! `tcgen05.cp` (PTX ISA 9.7.16.9.2): shared to Tensor Memory.

use super::{Options, Pair};
use crate::error::{Fault, Kind, Result};
use crate::matrix::{Element, Layout, Major, MatrixDescriptor, Packing, Swizzle};
use crate::tmem::{Width, split};

/// `.shape` with its multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyShape {
    /// `.128x256b`.
    L128B256,
    /// `.4x256b`.
    L4B256,
    /// `.128x128b`.
    L128B128,
    /// `.64x128b.warpx2::02_13`.
    L64B128Pairs02,
    /// `.64x128b.warpx2::01_23`.
    L64B128Pairs01,
    /// `.32x128b.warpx4`.
    L32B128,
}

/// Expansion of 16 small elements to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decompress {
    /// `.b8x16.b6x16_p32`.
    B6,
    /// `.b8x16.b4x16_p64`.
    B4,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Shape.
    pub shape: CopyShape,
    /// Expansion.
    pub decompress: Option<Decompress>,
}

impl CopyShape {
    /// Rows and 16-byte chunks per row of the source.
    pub const fn source(self) -> (u32, u32) {
        match self {
            CopyShape::L128B256 => (128, 2),
            CopyShape::L4B256 => (4, 2),
            CopyShape::L128B128 => (128, 1),
            CopyShape::L64B128Pairs02 | CopyShape::L64B128Pairs01 => (64, 1),
            CopyShape::L32B128 => (32, 1),
        }
    }

    /// Lanes, relative to the address, that receive row `i`.
    pub fn lanes(self, i: u32) -> impl Iterator<Item = u32> {
        let (first, step, copies) = match self {
            CopyShape::L128B256 | CopyShape::L128B128 => (i, 0, 1),
            CopyShape::L4B256 => (32 * i, 0, 1),
            CopyShape::L64B128Pairs02 => (i, 64, 2),
            CopyShape::L64B128Pairs01 => (i % 32 + 64 * (i / 32), 32, 2),
            CopyShape::L32B128 => (i, 32, 4),
        };
        (0..copies).map(move |copy| first + step * copy)
    }
}

impl Copy {
    /// Copies now, for each of `ctas` CTAs from its own shared memory into its own Tensor Memory.
    ///
    /// # Errors
    /// [`Kind::Tmem`] for a lane other than 0, [`Kind::Descriptor`] for a swizzle that is not K-major,
    /// [`Kind::Unsupported`] as `options` say, and those of the memories.
    pub fn execute<P: Pair>(
        &self,
        address: u32,
        descriptor: MatrixDescriptor,
        ctas: usize,
        options: &Options,
        pair: &mut P,
    ) -> Result<()> {
        let (lane, column) = split(address);
        let aligned = if self.shape == CopyShape::L4B256 { lane < 32 } else { lane == 0 };
        if !aligned {
            return Fault::err(Kind::Tmem, format!("tcgen05.cp of {:?} to lane {lane}", self.shape));
        }
        if descriptor.swizzle == Swizzle::B128Atom32 {
            return Fault::err(Kind::Descriptor, "tcgen05.cp from a swizzle that only MN-major operands have");
        }
        if self.shape == CopyShape::L4B256 {
            options.cp_4x256b.check("tcgen05.cp.4x256b")?;
        }
        if self.decompress.is_some() {
            options.small_in_bytes.check("tcgen05.cp with decompression")?;
        }
        let layout = Layout { descriptor, major: Major::K, element: Element::U8, packing: Packing::Dense };
        let (rows, chunks) = self.shape.source();
        layout.check_span(16 * chunks)?;
        for cta in 0..ctas {
            for row in 0..rows {
                for chunk in 0..chunks {
                    let bytes = self.expand(pair.read_shared(cta, layout.k_major_chunk(row, chunk))?);
                    let mut cells = [0; 4];
                    for (cell, bytes) in cells.iter_mut().zip(bytes.as_chunks::<4>().0) {
                        *cell = u32::from_le_bytes(*bytes);
                    }
                    for to in self.shape.lanes(row) {
                        pair.write_tmem(cta, lane + to, column + 4 * chunk, Width::Full, &cells)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn expand(&self, chunk: [u8; 16]) -> [u8; 16] {
        let (bits, shift) = match self.decompress {
            None => return chunk,
            Some(Decompress::B6) => (6, 0),
            Some(Decompress::B4) => (4, 2),
        };
        let all = u128::from_le_bytes(chunk);
        std::array::from_fn(|i| ((all >> (bits * i)) as u8 & ((1 << bits) - 1)) << shift)
    }
}
