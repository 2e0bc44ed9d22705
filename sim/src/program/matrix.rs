//! Decodes the instructions of the tensor cores.

use super::decode::{Decoder, Parts, unsupported};
use super::op::Op;
use super::operation::{Multiply, TensorOp, Wgmma, WgmmaA};
use super::types::Type;
use crate::error::{Fault, Kind, Result};
use crate::ptx::ast::Operand;
use crate::tcgen05::{self, Copy, CopyShape, Decompress};
use crate::tmem::{Access, Shape};

pub fn decode(d: &mut Decoder, p: &Parts) -> Result<Option<Op>> {
    Ok(Some(match p.root {
        "wgmma" => match p.modes.0.first().copied().unwrap_or("") {
            "fence" => Op::WgmmaFence,
            "commit_group" => Op::WgmmaCommit,
            "wait_group" => Op::WgmmaWait { pending: p.immediate(0)? as u32 },
            "mma_async" if !p.has("sp") => wgmma(d, p)?,
            _ => return unsupported(p.opcode),
        },
        "tcgen05" => return tensor(d, p).map(Some),
        "clusterlaunchcontrol" => launch_control(d, p)?,
        "mma" | "wmma" => return unsupported(p.opcode),
        _ => return Ok(None),
    }))
}

fn launch_control(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let axis = p.modes.0.iter().find_map(|m| m.strip_prefix("get_first_ctaid::"));
    match () {
        () if p.has("try_cancel") => Ok(Op::TryCancel {
            all: p.has("multicast::cluster::all"),
            response: d.address(p.operand(0)?)?,
            barrier: d.address(p.operand(1)?)?,
        }),
        () if p.has("is_canceled") => {
            Ok(Op::IsCanceled { p: d.predicate(p.operand(0)?)?.0, s: d.value(p.operand(1)?, Type::B128)? })
        }
        () if p.has("get_first_ctaid") => {
            let list = d.destinations(p.operand(0)?)?;
            let axes = list.iter().zip(0..3).filter_map(|(slot, axis)| slot.map(|slot| (slot, axis))).collect();
            Ok(Op::FirstCtaid { d: axes, s: d.value(p.operand(1)?, Type::B128)? })
        }
        () => match axis.and_then(|axis| ["x", "y", "z"].iter().position(|a| *a == axis)) {
            Some(axis) => {
                let slot = d.destination(p.operand(0)?)?;
                Ok(Op::FirstCtaid { d: Box::new([(slot, axis as u8)]), s: d.value(p.operand(1)?, Type::B128)? })
            }
            None => unsupported(p.opcode),
        },
    }
}

fn tensor(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let pair = p.has("cta_group::2");
    let what = p.modes.0.first().copied().unwrap_or("");
    let op = match what {
        "alloc" => TensorOp::Allocate { pair, address: d.address(p.operand(0)?)?, columns: d.word(p.operand(1)?)? },
        "dealloc" => TensorOp::Deallocate { pair, address: d.word(p.operand(0)?)?, columns: d.word(p.operand(1)?)? },
        "relinquish_alloc_permit" => TensorOp::Relinquish,
        "fence::before_thread_sync" | "fence::after_thread_sync" => return Ok(Op::Nop),
        "wait::ld" => return Ok(Op::TensorWait { load: true }),
        "wait::st" => return Ok(Op::TensorWait { load: false }),
        "ld" if !p.has("red") => {
            let access = access(p, p.operands.get(2))?;
            let list = d.destinations(p.operand(0)?)?.iter().copied().flatten().collect();
            TensorOp::Load { access, d: list, address: d.address(p.operand(1)?)? }
        }
        "st" => {
            let last = p.operands.len().saturating_sub(1);
            let access = access(p, p.operands.get(1).filter(|_| last == 2))?;
            TensorOp::Store { access, s: d.list(p.operand(last)?, Type::B32)?, address: d.address(p.operand(0)?)? }
        }
        "cp" => {
            let shape = match () {
                () if p.has("128x256b") => CopyShape::L128B256,
                () if p.has("4x256b") => CopyShape::L4B256,
                () if p.has("128x128b") => CopyShape::L128B128,
                () if p.has("64x128b") && p.has("warpx2::02_13") => CopyShape::L64B128Pairs02,
                () if p.has("64x128b") && p.has("warpx2::01_23") => CopyShape::L64B128Pairs01,
                () if p.has("32x128b") && p.has("warpx4") => CopyShape::L32B128,
                () => return unsupported(p.opcode),
            };
            let decompress = match () {
                () if p.has("b6x16_p32") => Some(Decompress::B6),
                () if p.has("b4x16_p64") => Some(Decompress::B4),
                () => None,
            };
            let copy = Copy { shape, decompress };
            let address = d.address(p.operand(0)?)?;
            TensorOp::Copy { pair, copy, address, descriptor: d.value(p.operand(1)?, Type::B64)? }
        }
        "mma" if !p.has("sp") && !p.has("ashift") => multiply(d, p, pair)?,
        "commit" => {
            let mask = match p.has("multicast::cluster") {
                true => Some(d.value(p.operand(1)?, Type::B16)?),
                false => None,
            };
            TensorOp::Commit { pair, barrier: d.address(p.operand(0)?)?, mask }
        }
        _ => return unsupported(p.opcode),
    };
    Ok(Op::Tensor(Box::new(op)))
}

fn access(p: &Parts, offset: Option<&Operand>) -> Result<Access> {
    let shape = match () {
        () if p.has("32x32b") => Shape::L32B32,
        () if p.has("16x64b") => Shape::L16B64,
        () if p.has("16x128b") => Shape::L16B128,
        () if p.has("16x256b") => Shape::L16B256,
        () if p.has("16x32bx2") => match offset {
            Some(Operand::Immediate(offset)) => Shape::L16B32X2(*offset as u32),
            _ => return Fault::err(Kind::Malformed, "16x32bx2 needs a column offset"),
        },
        () => return unsupported(p.opcode),
    };
    let count = p.modes.0.iter().find_map(|m| m.strip_prefix('x')?.parse().ok());
    let Some(count) = count else { return Fault::err(Kind::Malformed, "the repeat count is missing") };
    Ok(Access { shape, count, packed: p.has("pack::16b") || p.has("unpack::16b") })
}

fn multiply(d: &mut Decoder, p: &Parts, pair: bool) -> Result<TensorOp> {
    let kind = match p.modes.0.iter().find_map(|m| m.strip_prefix("kind::")) {
        Some("f16") => tcgen05::Kind::F16,
        Some("tf32") => tcgen05::Kind::Tf32,
        Some("f8f6f4") => tcgen05::Kind::F8f6f4,
        Some("i8") => tcgen05::Kind::I8,
        Some("mxf8f6f4") => tcgen05::Kind::Mxf8f6f4,
        Some("mxf4") => tcgen05::Kind::Mxf4,
        Some("mxf4nvf4") => tcgen05::Kind::Mxf4nvf4,
        _ => return unsupported(p.opcode),
    };
    let per_row = match () {
        () if p.has("scale_vec::1X") => Some(1),
        () if p.has("scale_vec::2X") => Some(2),
        () if p.has("scale_vec::4X") || p.has("block16") => Some(4),
        () if p.has("block32") && kind == tcgen05::Kind::Mxf8f6f4 => Some(1),
        () if p.has("block32") => Some(2),
        () => None,
    };
    let a = match p.operand(1)? {
        operand @ Operand::Address(..) => Ok(d.address(operand)?),
        operand => Err(d.value(operand, Type::B64)?),
    };
    let (b, descriptor) = (d.value(p.operand(2)?, Type::B64)?, d.word(p.operand(3)?)?);
    let mut next = 4;
    let mut disabled: Box<[u32]> = Box::new([]);
    let mut scales = None;
    if p.has("block_scale") {
        scales = Some([d.address(p.operand(4)?)?, d.address(p.operand(5)?)?]);
        next = 6;
    } else if matches!(p.operand(4)?, Operand::Vector(_)) {
        disabled = d.list(p.operand(4)?, Type::B32)?;
        next = 5;
    }
    let enable = d.predicate_or_constant(p.operand(next)?)?;
    let scale_d = match p.operands.get(next + 1) {
        Some(_) if p.has("ws") => return unsupported("a zero-column mask"),
        Some(Operand::Immediate(value)) => Some(*value as u32),
        Some(_) => return Fault::err(Kind::Malformed, "scale-input-d must be a literal"),
        None => None,
    };
    Ok(TensorOp::Multiply(Box::new(Multiply {
        pair,
        kind,
        weight_stationary: p.has("ws"),
        per_row,
        d: d.address(p.operand(0)?)?,
        a,
        b,
        descriptor,
        scales,
        disabled,
        enable,
        scale_d,
    })))
}

fn wgmma(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let bad = |what: &str| Fault::new(Kind::Malformed, what);
    let shape = p.modes.0.iter().find(|m| m.starts_with("m64n")).ok_or_else(|| bad("the shape is missing"))?;
    let (n, k) = shape[4..].split_once('k').ok_or_else(|| bad("the shape is malformed"))?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad("the shape is malformed"));
    let (n, k) = (number(n)?, number(k)?);
    let at = p.modes.0.iter().position(|m| m == shape).unwrap_or(0);
    let types: Vec<String> = p.modes.0[at + 1..].iter().filter(|m| **m != "satfinite").map(|m| m.to_string()).collect();
    let types: [String; 3] = types.try_into().map_err(|_| bad("three types are expected"))?;
    let Operand::Vector(_) = p.operand(0)? else { return Err(bad("a vector of accumulators is expected")) };
    let accumulators = d.list(p.operand(0)?, Type::F32)?;
    let a = match p.operand(1)? {
        Operand::Vector(_) => WgmmaA::Registers(d.list(p.operand(1)?, Type::B32)?),
        operand => WgmmaA::Descriptor(d.value(operand, Type::B64)?),
    };
    let b = d.value(p.operand(2)?, Type::B64)?;
    let scale_d = d.predicate_or_constant(p.operand(3)?)?;
    let immediate = |i: usize| if i < p.operands.len() { p.immediate(i) } else { Ok(0) };
    let sign = |value: u64| match value as i64 as i32 {
        1 => Ok(false),
        -1 => Ok(true),
        other => Err(bad(&format!("a sign must be 1 or -1, not {other}"))),
    };
    let integer = types[0] == "s32";
    let negate = if integer { [false; 2] } else { [sign(immediate(4)?)?, sign(immediate(5)?)?] };
    let transpose = match (&a, p.operands.len()) {
        (WgmmaA::Descriptor(_), 8) => [immediate(6)? != 0, immediate(7)? != 0],
        (WgmmaA::Registers(_), 7) => [false, immediate(6)? != 0],
        _ => [false; 2],
    };
    Ok(Op::Wgmma(Box::new(Wgmma { n, k, types, d: accumulators, a, b, scale_d, negate, transpose })))
}
