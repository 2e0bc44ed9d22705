//! Decodes loads, stores, atomics, address conversions and asynchronous copies.

use super::decode::{Decoder, Parts, unsupported};
use super::op::Op;
use super::operation::{AsyncCopy, Atomic, AtomicOp, BulkOp, StoreAsync};
use super::types::Type;
use crate::error::{Fault, Kind, Result};
use crate::ptx::ast::{Operand, Space};

fn space(p: &Parts) -> Space {
    for mode in p.modes.0 {
        return match *mode {
            "global" => Space::Global,
            "shared" | "shared::cta" => Space::Shared,
            "shared::cluster" => Space::SharedCluster,
            "local" => Space::Local,
            "param" | "param::entry" => Space::Param,
            "const" => Space::Const,
            _ => continue,
        };
    }
    Space::Generic
}

fn strong(p: &Parts) -> bool {
    ["relaxed", "acquire", "release", "volatile", "mmio"].iter().any(|m| p.has(m))
}

/// Bytes of an element, and elements of the vector.
fn shape(p: &Parts) -> Result<(u32, usize, Type)> {
    let t = p.ty()?;
    let vector = [("v2", 2), ("v4", 4), ("v8", 8)].into_iter().find(|(n, _)| p.has(n)).map_or(1, |(_, v)| v);
    Ok((t.bits() / 8, vector, t))
}

pub fn decode(d: &mut Decoder, p: &Parts) -> Result<Option<Op>> {
    Ok(Some(match p.root {
        "ld" | "ldu" => {
            let (bytes, vector, t) = shape(p)?;
            let list = d.destinations(p.operand(0)?)?;
            if list.len() != vector {
                return Fault::err(Kind::Malformed, format!("{vector} registers are expected"));
            }
            let (address, offset) = d.address(p.operand(1)?)?;
            Op::Load { space: space(p), bytes, signed: t.signed(), d: list, address, offset, strong: strong(p) }
        }
        "st" | "red" if p.has("async") => store_async(d, p)?,
        "st" if p.has("bulk") => return unsupported(p.opcode),
        "st" => {
            let (bytes, vector, t) = shape(p)?;
            let (address, offset) = d.address(p.operand(0)?)?;
            let s = d.list(p.operand(1)?, t)?;
            if s.len() != vector {
                return Fault::err(Kind::Malformed, format!("{vector} registers are expected"));
            }
            Op::Store { space: space(p), bytes, s, address, offset, strong: strong(p) }
        }
        "atom" | "red" => atomic(d, p)?,
        "cvta" => {
            let to = p.has("to");
            let generic = space(p);
            let t = p.ty()?;
            let (dst, s) = (d.destination(p.operand(0)?)?, d.value(p.operand(1)?, t)?);
            Op::Convert { wide: to, generic: Some(generic), d: dst, s }
        }
        "mapa" => Op::MapRank {
            d: d.destination(p.operand(0)?)?,
            address: d.value(p.operand(1)?, Type::U64)?,
            rank: d.word(p.operand(2)?)?,
        },
        "getctarank" => Op::GetRank { d: d.destination(p.operand(0)?)?, address: d.value(p.operand(1)?, Type::U64)? },
        "prefetch" | "prefetchu" if p.has("tensormap") => {
            let (address, offset) = d.address(p.operand(0)?)?;
            Op::PrefetchMap { address, offset }
        }
        "prefetch" | "prefetchu" | "createpolicy" if p.root != "createpolicy" => Op::Nop,
        "createpolicy" => {
            let zero = d.value(&Operand::Immediate(0), Type::U64)?;
            Op::Move { d: d.destination(p.operand(0)?)?, s: zero }
        }
        "ldmatrix" | "stmatrix" => {
            p.only(&["sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"])?;
            let transpose = p.has("trans");
            if p.root == "ldmatrix" {
                let (address, offset) = d.address(p.operand(1)?)?;
                let list = d.destinations(p.operand(0)?)?.iter().copied().flatten().collect();
                Op::LoadMatrix { transpose, d: list, address, offset }
            } else {
                let (address, offset) = d.address(p.operand(0)?)?;
                Op::StoreMatrix { transpose, s: d.list(p.operand(1)?, Type::B32)?, address, offset }
            }
        }
        "cp" if p.has("bulk") => match () {
            () if p.has("commit_group") => Op::BulkCommit,
            () if p.has("wait_group") => Op::BulkWait { pending: p.immediate(0)? as u32, read: p.has("read") },
            () => bulk(d, p)?,
        },
        "cp" if p.has("commit_group") => Op::CopyAsyncCommit,
        "cp" if p.has("wait_all") => Op::CopyAsyncWait { pending: None },
        "cp" if p.has("wait_group") => Op::CopyAsyncWait { pending: Some(p.immediate(0)? as u32) },
        "cp" if p.has("async") && (p.has("ca") || p.has("cg")) => {
            let size = match p.operands.get(3) {
                Some(Operand::Not(_)) => return unsupported("cp.async with an ignore predicate"),
                Some(operand) => Some(d.word(operand)?),
                None => None,
            };
            Op::CopyAsync {
                bytes: p.immediate(2)? as u32,
                shared: d.address(p.operand(0)?)?,
                global: d.address(p.operand(1)?)?,
                size,
            }
        }
        _ => return Ok(None),
    }))
}

fn atomic(d: &mut Decoder, p: &Parts) -> Result<Op> {
    use AtomicOp::*;
    p.only(&[
        "relaxed",
        "acquire",
        "release",
        "acq_rel",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "global",
        "shared",
        "shared::cta",
        "shared::cluster",
        "add",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "exch",
        "cas",
        "inc",
        "dec",
        "noftz",
        "v2",
        "v4",
        "v8",
        "L2::cache_hint",
    ])?;
    let (bytes, vector, t) = shape(p)?;
    let op = match p.modes.0.iter().find_map(|m| match (*m, t) {
        ("add", Type::F32) => Some(AddF32),
        ("add", Type::F64) => Some(AddF64),
        ("add", Type::F16 | Type::F16x2) => Some(AddF16),
        ("add", Type::Bf16 | Type::Bf16x2) => Some(AddBf16),
        (_, Type::F16 | Type::Bf16 | Type::F32 | Type::F64) if *m != "exch" => None,
        ("add", _) => Some(Add),
        ("min", t) if t.signed() => Some(MinSigned),
        ("max", t) if t.signed() => Some(MaxSigned),
        ("min", _) => Some(Min),
        ("max", _) => Some(Max),
        ("and", _) => Some(And),
        ("or", _) => Some(Or),
        ("xor", _) => Some(Xor),
        ("exch", _) => Some(Exchange),
        ("cas", _) => Some(Swap),
        ("inc", _) => Some(Increment),
        ("dec", _) => Some(Decrement),
        _ => None,
    }) {
        Some(op) => op,
        None => return unsupported(p.opcode),
    };
    // PTX ISA, "red", "atom": vectors are for floating-point sums in global memory.
    let sums = matches!(op, AddF32 | AddF16 | AddBf16);
    if vector > 1 && (!sums || bytes as usize * vector > 16) {
        return unsupported(p.opcode);
    }
    let first = usize::from(p.root == "atom");
    let dst = if first == 1 { d.destinations(p.operand(0)?)? } else { Box::new([]) as Box<[_]> };
    // nvcc writes an atom with a destination that nobody reads where CUDA C++ drops the result; ptxas makes it a red.
    let returns = first == 1 && d.wanted(p.operand(0)?);
    let (address, offset) = d.address(p.operand(first)?)?;
    let b = d.list(p.operand(first + 1)?, t)?;
    if b.len() != vector || first == 1 && dst.len() != vector {
        return Fault::err(Kind::Malformed, format!("{vector} registers are expected"));
    }
    let c = if op == Swap { d.value(p.operand(first + 2)?, t)? } else { b[0] };
    Ok(Op::Atomic(Box::new(Atomic { space: space(p), op, bits: t.bits(), returns, d: dst, address, offset, b, c })))
}

/// The forms of `st.async` and `red.async` that signal an mbarrier.
fn store_async(d: &mut Decoder, p: &Parts) -> Result<Op> {
    if !p.has("mbarrier::complete_tx::bytes") {
        return unsupported(p.opcode);
    }
    let (bytes, vector, t) = shape(p)?;
    let reduce = match p.root {
        "red" => Some((operation(p), p.modes.0.last().copied().unwrap_or("").to_string())),
        _ => None,
    };
    let s = d.list(p.operand(1)?, t)?;
    if s.len() != vector || vector > 1 && reduce.is_some() || bytes as usize * vector > 16 {
        return unsupported(p.opcode);
    }
    let (address, barrier) = (d.address(p.operand(0)?)?, d.address(p.operand(2)?)?);
    Ok(Op::StoreAsync(Box::new(StoreAsync { bytes, s, address, barrier, reduce })))
}

/// Name of a reduction.
fn operation(p: &Parts) -> String {
    let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
    p.modes.0.iter().find(|m| names.contains(m)).copied().unwrap_or("").to_string()
}

/// Bulk copies: the operands follow from the qualifiers.
fn bulk(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let spaces: Vec<&str> =
        p.modes.0.iter().copied().filter(|m| matches!(*m, "global" | "shared::cta" | "shared::cluster")).collect();
    let op = match (&spaces[..], p.has("prefetch")) {
        (_, true) => BulkOp::Prefetch,
        (["shared::cluster" | "shared::cta", "global"], _) => BulkOp::Load,
        (["global", "shared::cta"], _) => BulkOp::Store,
        (["shared::cluster", "shared::cta"], _) => BulkOp::Cluster,
        _ => return unsupported(p.opcode),
    };
    if op == BulkOp::Prefetch {
        return Ok(Op::Nop);
    }
    let tensor = p.has("tensor");
    let mode = match () {
        () if p.modes.0.iter().any(|m| m.starts_with("im2col")) => return unsupported("im2col copies"),
        () if p.has("tile::gather4") => "tile::gather4",
        () if p.has("tile::scatter4") => "tile::scatter4",
        () => "tile",
    };
    if p.has("cp_mask") || p.has("ignore_oob") {
        return unsupported(p.opcode);
    }
    let reduce = match p.root == "cp" && p.modes.0.first() == Some(&"reduce") {
        true => {
            let t = p.modes.0.last().copied().filter(|m| Type::parse(m).is_some()).unwrap_or("");
            Some((operation(p), t.to_string()))
        }
        false => None,
    };
    let zero = d.value(&Operand::Immediate(0), Type::U64)?;
    let mut copy = AsyncCopy {
        op,
        map: zero,
        coordinates: Box::new([]),
        shared: (zero, 0),
        global: (zero, 0),
        bytes: zero,
        barrier: (zero, 0),
        multicast: None,
        reduce,
        mode,
        pair: p.has("cta_group::2"),
    };
    let (to, from) = (p.operand(0)?, p.operand(1)?);
    let mut next = 2;
    let (near, far) = if op == BulkOp::Store { (from, to) } else { (to, from) };
    copy.shared = d.address(near)?;
    if tensor {
        let Operand::Address(base, offset, coordinates) = far else {
            return Fault::err(Kind::Malformed, "a tensor map with coordinates is expected");
        };
        if *offset != 0 {
            return unsupported("an offset to a tensor map");
        }
        copy.map = d.value(base, Type::U64)?;
        copy.coordinates = coordinates.iter().map(|c| d.word(c)).collect::<Result<_>>()?;
    } else {
        copy.global = d.address(far)?;
        copy.bytes = d.word(p.operand(next)?)?;
        next += 1;
    }
    if op != BulkOp::Store {
        copy.barrier = d.address(p.operand(next)?)?;
        next += 1;
    }
    if p.has("multicast::cluster") {
        copy.multicast = Some(d.value(p.operand(next)?, Type::B16)?);
    }
    Ok(Op::Bulk(Box::new(copy)))
}
