//! Decoded instructions.

use super::convert::Conversion;
use crate::ptx::Special;
use crate::ptx::ast::{Space, Symbol};
use crate::tcgen05::{Copy, Kind};
use crate::tmem::Access;

/// Index of a value register.
pub type Slot = u32;
/// Index of a predicate.
pub type Pred = u32;
/// One register of a warp.
pub type Lanes = [u64; 32];
pub type Map = fn(&mut Lanes, &Lanes, &Lanes, &Lanes);
pub type Compare = fn(&Lanes, &Lanes) -> u32;

/// What a slot holds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    Value(u64),
    Special(Special),
    Symbol(Symbol, i64),
}

#[derive(Clone, Debug)]
pub struct Inst {
    pub guard: Option<(Pred, bool)>,
    pub op: Op,
    pub line: u32,
    pub source: (u32, u32),
}

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

#[derive(Clone, Debug)]
pub enum Op {
    Map {
        f: Map,
        d: Slot,
        s: [Slot; 3],
        count: u8,
    },
    ConvertValue {
        c: Conversion,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Lop3 {
        d: Slot,
        s: [Slot; 3],
        table: u8,
    },
    Insert {
        d: Slot,
        a: Slot,
        b: Slot,
        position: Slot,
        length: Slot,
        bits: u32,
    },
    Move {
        d: Slot,
        s: Slot,
    },
    Varying {
        d: Slot,
        special: Special,
    },
    /// `bits` each, least significant first.
    Split {
        d: Box<[Option<Slot>]>,
        s: Slot,
        bits: u32,
    },
    Join {
        d: Slot,
        s: Box<[Slot]>,
        bits: u32,
    },
    /// Copies both halves of 128 bits.
    Move128 {
        d: Slot,
        s: Slot,
    },
    Select {
        d: Slot,
        a: Slot,
        b: Slot,
        p: Pred,
        negate: bool,
    },
    Compare {
        f: Compare,
        p: Option<Pred>,
        q: Option<Pred>,
        a: Slot,
        b: Slot,
        combine: Option<(LogicOp, Pred, bool)>,
    },
    Logic {
        op: LogicOp,
        d: Pred,
        a: (Pred, bool),
        b: (Pred, bool),
    },
    /// A predicate from another, or from a constant.
    SetPredicate {
        d: Pred,
        s: Result<(Pred, bool), bool>,
    },
    Load {
        space: Space,
        bytes: u32,
        signed: bool,
        d: Box<[Option<Slot>]>,
        address: Slot,
        offset: i64,
        /// `.relaxed`, `.acquire`, `.volatile`: several such accesses are no race.
        strong: bool,
    },
    Store {
        space: Space,
        bytes: u32,
        s: Box<[Slot]>,
        address: Slot,
        offset: i64,
        strong: bool,
    },
    Atomic(Box<Atomic>),
    Convert {
        wide: bool,
        generic: Option<Space>,
        d: Slot,
        s: Slot,
    },
    MapRank {
        d: Slot,
        address: Slot,
        rank: Slot,
    },
    GetRank {
        d: Slot,
        address: Slot,
    },
    Branch {
        target: u32,
    },
    Exit,
    /// In place of an instruction that was left out; its predicate becomes true.
    Omitted {
        done: Option<Pred>,
    },
    Trap,
    Nop,
    Fence {
        proxy: Option<Space>,
        any: bool,
    },
    FenceMbarrierInit,
    WarpSync {
        mask: Slot,
    },
    Barrier {
        id: Slot,
        count: Option<Slot>,
        wait: bool,
        aligned: bool,
        reduce: Option<(VoteMode, Slot, (Pred, bool))>,
    },
    ClusterArrive {
        relaxed: bool,
    },
    ClusterWait,
    Shuffle {
        mode: ShuffleMode,
        d: Slot,
        p: Option<Pred>,
        s: Slot,
        b: Slot,
        c: Slot,
        mask: Slot,
    },
    Vote {
        mode: VoteMode,
        d: u32,
        p: (Pred, bool),
        mask: Slot,
    },
    Match {
        all: bool,
        d: Slot,
        p: Option<Pred>,
        s: Slot,
        bits: u32,
        mask: Slot,
    },
    Reduce {
        f: fn(u64, u64) -> u64,
        d: Slot,
        s: Slot,
        mask: Slot,
    },
    Elect {
        d: Option<Slot>,
        p: Option<Pred>,
        mask: Slot,
    },
    ActiveMask {
        d: Slot,
    },
    SetMaxRegisters {
        increase: bool,
        count: u32,
    },
    GridWait,
    Mbarrier {
        op: MbarrierOp,
        space: Space,
        address: Slot,
        offset: i64,
    },
    Bulk(Box<AsyncCopy>),
    StoreAsync(Box<StoreAsync>),
    BulkCommit,
    BulkWait {
        pending: u32,
        read: bool,
    },
    /// Non-bulk `cp.async`.
    CopyAsync {
        bytes: u32,
        shared: (Slot, i64),
        global: (Slot, i64),
        size: Option<Slot>,
    },
    CopyAsyncCommit,
    /// `None`: all, committed or not.
    CopyAsyncWait {
        pending: Option<u32>,
    },
    PrefetchMap {
        address: Slot,
        offset: i64,
    },
    LoadMatrix {
        transpose: bool,
        d: Box<[Slot]>,
        address: Slot,
        offset: i64,
    },
    StoreMatrix {
        transpose: bool,
        s: Box<[Slot]>,
        address: Slot,
        offset: i64,
    },
    /// `clusterlaunchcontrol.try_cancel`; `all`: the whole cluster learns of it.
    TryCancel {
        all: bool,
        response: (Slot, i64),
        barrier: (Slot, i64),
    },
    IsCanceled {
        p: Pred,
        s: Slot,
    },
    /// Elements of the first CTA's index, with their axes.
    FirstCtaid {
        d: Box<[(Slot, u8)]>,
        s: Slot,
    },
    Wgmma(Box<Wgmma>),
    Tensor(Box<TensorOp>),
    TensorWait {
        load: bool,
    },
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        pending: u32,
    },
}
