//! What the larger instructions need: one record or list of modes each.

use super::op::{Pred, Slot};
use crate::ptx::ast::Space;
use crate::tcgen05::{Copy, Kind};
use crate::tmem::Access;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogicOp {
    And,
    Or,
    Xor,
}

impl LogicOp {
    /// Lanes in which a result is known: both inputs are, or one decides. Each input is a value and where it is known.
    pub fn decided(self, a: (u32, u32), b: (u32, u32)) -> u32 {
        let both = a.1 & b.1;
        match self {
            LogicOp::And => both | a.1 & !a.0 | b.1 & !b.0,
            LogicOp::Or => both | a.1 & a.0 | b.1 & b.0,
            LogicOp::Xor => both,
        }
    }

    pub fn apply(self, a: u32, b: u32) -> u32 {
        match self {
            LogicOp::And => a & b,
            LogicOp::Or => a | b,
            LogicOp::Xor => a ^ b,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    Add,
    AddF32,
    AddF64,
    /// One value, or two in a word.
    AddF16,
    AddBf16,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
    Exchange,
    Swap,
    Increment,
    Decrement,
}

impl AtomicOp {
    /// Whether it adds floating-point values.
    pub fn is_float(self) -> bool {
        matches!(self, AtomicOp::AddF32 | AtomicOp::AddF64 | AtomicOp::AddF16 | AtomicOp::AddBf16)
    }
}

/// `atom`, or `red` with its elements.
#[derive(Clone, Debug)]
pub struct Atomic {
    pub space: Space,
    pub op: AtomicOp,
    /// Of an element.
    pub bits: u32,
    /// Somebody reads the old value.
    pub returns: bool,
    pub d: Box<[Option<Slot>]>,
    pub address: Slot,
    pub offset: i64,
    pub b: Box<[Slot]>,
    pub c: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// mbarrier instructions on one object.
#[derive(Clone, Debug)]
pub enum MbarrierOp {
    Init {
        count: Slot,
    },
    Invalidate,
    Arrive {
        state: Option<Slot>,
        count: Option<Slot>,
        expect: Option<Slot>,
        drop: bool,
        no_complete: bool,
    },
    ExpectTx {
        bytes: Slot,
    },
    CompleteTx {
        bytes: Slot,
    },
    /// `parity` or the state of an arrival; `suspend`: try_wait.
    Wait {
        done: Option<Pred>,
        parity: bool,
        operand: Slot,
        suspend: bool,
    },
}

/// Where a bulk copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkOp {
    /// Global to shared memory, signalled on an mbarrier.
    Load,
    /// Shared to global memory, in a bulk group.
    Store,
    /// Shared memory to that of another CTA.
    Cluster,
    /// A hint.
    Prefetch,
}

/// `cp.async.bulk` and `cp.reduce.async.bulk`, plain or by a tensor map.
#[derive(Clone, Debug)]
pub struct AsyncCopy {
    pub op: BulkOp,
    /// Tensor map and coordinates; empty coordinates: a plain copy.
    pub map: Slot,
    pub coordinates: Box<[Slot]>,
    /// Shared-memory address.
    pub shared: (Slot, i64),
    /// Global address, or the source of a cluster copy, of a plain copy.
    pub global: (Slot, i64),
    pub bytes: Slot,
    pub barrier: (Slot, i64),
    pub multicast: Option<Slot>,
    /// Operation and type of a reduction.
    pub reduce: Option<(String, String)>,
    /// Tile mode: "tile", "tile::gather4", "tile::scatter4".
    pub mode: &'static str,
    /// The mbarrier may lie in the peer CTA.
    pub pair: bool,
}

/// `st.async` and `red.async` to the shared memory of a CTA, signalled on an mbarrier of the same.
#[derive(Clone, Debug)]
pub struct StoreAsync {
    /// Of an element.
    pub bytes: u32,
    pub s: Box<[Slot]>,
    pub address: (Slot, i64),
    pub barrier: (Slot, i64),
    pub reduce: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub enum WgmmaA {
    Descriptor(Slot),
    Registers(Box<[Slot]>),
}

#[derive(Clone, Debug)]
pub struct Wgmma {
    pub n: u32,
    pub k: u32,
    /// Types of D, A and B as written.
    pub types: [String; 3],
    pub d: Box<[Slot]>,
    pub a: WgmmaA,
    pub b: Slot,
    /// Predicate, or a constant.
    pub scale_d: Result<(Pred, bool), bool>,
    pub negate: [bool; 2],
    pub transpose: [bool; 2],
}

/// `tcgen05` instructions on Tensor Memory; `pair`: `.cta_group::2`.
#[derive(Clone, Debug)]
pub enum TensorOp {
    Allocate { pair: bool, address: (Slot, i64), columns: Slot },
    Deallocate { pair: bool, address: Slot, columns: Slot },
    Relinquish,
    Load { access: Access, d: Box<[Slot]>, address: (Slot, i64) },
    Store { access: Access, s: Box<[Slot]>, address: (Slot, i64) },
    Copy { pair: bool, copy: Copy, address: (Slot, i64), descriptor: Slot },
    Multiply(Box<Multiply>),
    Commit { pair: bool, barrier: (Slot, i64), mask: Option<Slot> },
}

impl TensorOp {
    /// `.cta_group::2`, for instructions that have a group.
    pub fn pair(&self) -> Option<bool> {
        match self {
            TensorOp::Allocate { pair, .. }
            | TensorOp::Deallocate { pair, .. }
            | TensorOp::Copy { pair, .. }
            | TensorOp::Commit { pair, .. } => Some(*pair),
            TensorOp::Multiply(multiply) => Some(multiply.pair),
            _ => None,
        }
    }
}

/// `tcgen05.mma`.
#[derive(Clone, Debug)]
pub struct Multiply {
    pub pair: bool,
    pub kind: Kind,
    pub weight_stationary: bool,
    pub per_row: Option<u32>,
    pub d: (Slot, i64),
    /// An address in Tensor Memory, or a descriptor.
    pub a: Result<(Slot, i64), Slot>,
    pub b: Slot,
    pub descriptor: Slot,
    pub scales: Option<[(Slot, i64); 2]>,
    pub disabled: Box<[Slot]>,
    pub enable: Result<(Pred, bool), bool>,
    pub scale_d: Option<u32>,
}
