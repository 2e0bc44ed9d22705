//! Tensor core instructions of the fifth generation (PTX ISA 9.7.16): descriptors, products with and without block
//! scaling, copies into Tensor Memory, and what orders them. Memories are the caller's, behind [`Pair`].

mod block_scale;
mod copy;
mod descriptor;
mod instruction;
mod mma;
mod order;
mod place;
mod shift;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::matrix::SharedRead;
use crate::tmem::Width;
use crate::unconfirmed::Unconfirmed;

pub use copy::{Copy, CopyShape, Decompress};
pub use descriptor::decode_descriptor;
pub use instruction::{Accumulator, Instruction, Kind, Scaling};
pub use mma::{Operand, Operands};
pub use order::{Collector, CollectorUse, Operation, commit_targets, pipelined, reads_first};
pub use shift::shift_down;

/// Memories of the CTAs that an instruction works on: index 0 with `cta_group::1`; with `cta_group::2` 0 is the CTA of
/// even rank and 1 its peer.
pub trait Pair {
    /// 16 bytes of a CTA's shared memory, through the async proxy.
    ///
    /// # Errors
    /// Whatever the memory finds wrong.
    fn read_shared(&mut self, cta: usize, address: u32) -> Result<[u8; 16]>;

    /// Copies `out.len()` cells of a lane of a CTA's Tensor Memory.
    ///
    /// # Errors
    /// Whatever the memory finds wrong: allocation, bounds, cells never written in this width.
    fn read_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, out: &mut [u32]) -> Result<()>;

    /// Overwrites cells of a lane.
    ///
    /// # Errors
    /// Whatever the memory finds wrong.
    fn write_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, values: &[u32]) -> Result<()>;
}

/// Choices where the ISA shows only a figure and other sources are silent or differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A in Tensor Memory for M = 64 without `.ws`: assumed in the lanes of D, 16 of every 32.
    pub m64_a_in_tmem: Unconfirmed,
    /// A in Tensor Memory for M = 32 with `.ws`: assumed in four copies.
    pub m32_a_in_tmem: Unconfirmed,
    /// 4- and 6-bit elements in 8-bit containers: assumed in bits 5:2 and 5:0.
    pub small_in_bytes: Unconfirmed,
    /// Eight words of `disable-output-lane`: assumed to begin with those of the even CTA.
    pub pair_lane_mask: Unconfirmed,
    /// f16 D of `kind::f8f6f4`, on which two tables of the ISA differ: assumed to exist.
    pub f8_into_f16: Unconfirmed,
    /// `tcgen05.cp.4x256b`: row i assumed to go to lane 32 i.
    pub cp_4x256b: Unconfirmed,
    /// `tcgen05.shift`: row i assumed to move to row i + 1.
    pub shift: Unconfirmed,
}

impl Options {
    /// Everything as assumed.
    pub const ASSUME: Options = Options {
        m64_a_in_tmem: Unconfirmed::Assume,
        m32_a_in_tmem: Unconfirmed::Assume,
        small_in_bytes: Unconfirmed::Assume,
        pair_lane_mask: Unconfirmed::Assume,
        f8_into_f16: Unconfirmed::Assume,
        cp_4x256b: Unconfirmed::Assume,
        shift: Unconfirmed::Assume,
    };
}

/// The shared memory of one CTA of a pair.
struct SharedOf<'a, P> {
    pair: &'a mut P,
    cta: usize,
}

impl<P: Pair> SharedRead for SharedOf<'_, P> {
    fn read16(&mut self, address: u32) -> Result<[u8; 16]> {
        self.pair.read_shared(self.cta, address)
    }
}
