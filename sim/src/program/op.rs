//! Decoded instructions.

use super::convert::Conversion;
use super::operation::{AsyncCopy, Atomic, LogicOp, MbarrierOp, ShuffleMode, StoreAsync, TensorOp, VoteMode, Wgmma};
use crate::ptx::Special;
use crate::ptx::ast::{Space, Symbol};

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
