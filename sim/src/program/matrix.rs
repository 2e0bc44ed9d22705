//! Decodes the instructions of the tensor cores.

use super::decode::{Decoder, Parts, unsupported};
use super::op::{Op, Wgmma, WgmmaA};
use super::types::Type;
use crate::error::{Fault, Kind, Result};
use crate::ptx::ast::Operand;

pub fn decode(d: &mut Decoder, p: &Parts) -> Result<Option<Op>> {
    Ok(Some(match p.root {
        "wgmma" => match p.modes.0.first().copied().unwrap_or("") {
            "fence" => Op::WgmmaFence,
            "commit_group" => Op::WgmmaCommit,
            "wait_group" => Op::WgmmaWait { pending: p.immediate(0)? as u32 },
            "mma_async" if !p.has("sp") => wgmma(d, p)?,
            _ => return unsupported(p.opcode),
        },
        "tcgen05" | "clusterlaunchcontrol" | "mma" | "wmma" => return unsupported(p.opcode),
        _ => return Ok(None),
    }))
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
