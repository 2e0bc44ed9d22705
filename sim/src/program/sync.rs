//! Decodes barriers, fences, mbarriers and warp-level exchange.

use super::decode::{Decoder, Parts, unsupported};
use super::float::{f32_of, minimum};
use super::op::Op;
use super::operation::{MbarrierOp, ShuffleMode, VoteMode};
use super::types::Type;
use crate::error::{Fault, Kind, Result};
use crate::ptx::ast::{Operand, Space};

pub fn decode(d: &mut Decoder, p: &Parts) -> Result<Option<Op>> {
    let full = Operand::Immediate(0xFFFF_FFFF);
    Ok(Some(match p.root {
        "bar" | "barrier" if p.has("warp") => Op::WarpSync { mask: d.word(p.operand(0)?)? },
        "barrier" if p.has("cluster") && p.has("arrive") => Op::ClusterArrive { relaxed: p.has("relaxed") },
        "barrier" if p.has("cluster") => Op::ClusterWait,
        "bar" | "barrier" => barrier(d, p)?,
        "fence" if p.has("mbarrier_init") => Op::FenceMbarrierInit,
        "fence" if p.has("proxy") => {
            if p.has("alias") || p.modes.0.iter().any(|m| m.starts_with("tensormap")) {
                return Ok(Some(Op::Nop));
            }
            let space = p.modes.0.iter().find_map(|m| match *m {
                "global" => Some(Space::Global),
                "shared::cta" | "shared::cluster" => Some(Space::Shared),
                _ => None,
            });
            Op::Fence { proxy: space, any: space.is_none() }
        }
        "fence" | "membar" => Op::Fence { proxy: None, any: false },
        "mbarrier" => mbarrier(d, p)?,
        "shfl" => {
            let mode = match () {
                () if p.has("up") => ShuffleMode::Up,
                () if p.has("down") => ShuffleMode::Down,
                () if p.has("bfly") => ShuffleMode::Butterfly,
                () if p.has("idx") => ShuffleMode::Index,
                () => return unsupported(p.opcode),
            };
            let (dst, predicate) = d.pair(p.operand(0)?)?;
            let Some(dst) = dst else { return Fault::err(Kind::Malformed, "a destination is expected") };
            Op::Shuffle {
                mode,
                d: dst,
                p: predicate,
                s: d.word(p.operand(1)?)?,
                b: d.word(p.operand(2)?)?,
                c: d.word(p.operand(3)?)?,
                mask: d.word(p.operands.get(4).unwrap_or(&full))?,
            }
        }
        "vote" => {
            let mode = match () {
                () if p.has("all") => VoteMode::All,
                () if p.has("any") => VoteMode::Any,
                () if p.has("uni") => VoteMode::Uniform,
                () => VoteMode::Ballot,
            };
            let dst = match mode {
                VoteMode::Ballot => d.destination(p.operand(0)?)?,
                _ => d.predicate(p.operand(0)?)?.0,
            };
            Op::Vote { mode, d: dst, p: d.predicate(p.operand(1)?)?, mask: d.word(p.operands.get(2).unwrap_or(&full))? }
        }
        "match" => {
            let (dst, predicate) = d.pair(p.operand(0)?)?;
            let Some(dst) = dst else { return Fault::err(Kind::Malformed, "a destination is expected") };
            let t = p.ty()?;
            Op::Match {
                all: p.has("all"),
                d: dst,
                p: predicate,
                s: d.value(p.operand(1)?, t)?,
                bits: t.bits(),
                mask: d.word(p.operand(2)?)?,
            }
        }
        "redux" => {
            let t = p.ty()?;
            let f: fn(u64, u64) -> u64 = match (p.modes.0.get(1).copied().unwrap_or(""), t) {
                ("add", Type::U32 | Type::S32) => |a, b| u64::from((a as u32).wrapping_add(b as u32)),
                ("min", Type::U32) => |a, b| u64::from((a as u32).min(b as u32)),
                ("max", Type::U32) => |a, b| u64::from((a as u32).max(b as u32)),
                ("min", Type::S32) => |a, b| u64::from((a as i32).min(b as i32) as u32),
                ("max", Type::S32) => |a, b| u64::from((a as i32).max(b as i32) as u32),
                ("min", Type::F32) if !p.has("abs") && !p.has("NaN") => |a, b| extreme(a, b, false, false),
                ("max", Type::F32) if !p.has("abs") && !p.has("NaN") => |a, b| extreme(a, b, false, true),
                ("min", Type::F32) if !p.has("abs") => |a, b| extreme(a, b, true, false),
                ("max", Type::F32) if !p.has("abs") => |a, b| extreme(a, b, true, true),
                ("and", Type::B32) => |a, b| a & b,
                ("or", Type::B32) => |a, b| a | b,
                ("xor", Type::B32) => |a, b| a ^ b,
                _ => return unsupported(p.opcode),
            };
            Op::Reduce { f, d: d.destination(p.operand(0)?)?, s: d.word(p.operand(1)?)?, mask: d.word(p.operand(2)?)? }
        }
        "elect" => {
            let (dst, predicate) = d.pair(p.operand(0)?)?;
            Op::Elect { d: dst, p: predicate, mask: d.word(p.operand(1)?)? }
        }
        "activemask" => Op::ActiveMask { d: d.destination(p.operand(0)?)? },
        "setmaxnreg" => Op::SetMaxRegisters { increase: p.has("inc"), count: p.immediate(0)? as u32 },
        _ => return Ok(None),
    }))
}

fn extreme(a: u64, b: u64, nan: bool, larger: bool) -> u64 {
    minimum(f32_of(a), f32_of(b), nan, larger).to_bits().into()
}

fn barrier(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let aligned = p.root == "bar" || p.has("aligned");
    if p.has("red") {
        let t = p.ty()?;
        let mode = match () {
            () if p.has("popc") => VoteMode::Ballot,
            () if p.has("and") => VoteMode::All,
            () => VoteMode::Any,
        };
        let dst = if t == Type::Pred { d.predicate(p.operand(0)?)?.0 } else { d.destination(p.operand(0)?)? };
        let last = p.operands.len().saturating_sub(1);
        let count = if last == 3 { Some(d.word(p.operand(2)?)?) } else { None };
        let reduce = Some((mode, dst, d.predicate(p.operand(last)?)?));
        return Ok(Op::Barrier { id: d.word(p.operand(1)?)?, count, wait: true, aligned, reduce });
    }
    let wait = !p.has("arrive");
    let id = d.word(p.operand(0)?)?;
    let count = match p.operands.get(1) {
        Some(operand) => Some(d.word(operand)?),
        None if !wait => return Fault::err(Kind::Malformed, "an arrival needs a thread count"),
        None => None,
    };
    Ok(Op::Barrier { id, count, wait, aligned, reduce: None })
}

fn mbarrier(d: &mut Decoder, p: &Parts) -> Result<Op> {
    let space = match () {
        () if p.has("shared::cluster") => Space::SharedCluster,
        () if p.has("shared") || p.has("shared::cta") => Space::Shared,
        () => Space::Generic,
    };
    let what = p.modes.0.first().copied().unwrap_or("");
    let (address, operation) = match what {
        "init" => (0, MbarrierOp::Init { count: d.word(p.operand(1)?)? }),
        "inval" => (0, MbarrierOp::Invalidate),
        "expect_tx" => (0, MbarrierOp::ExpectTx { bytes: d.word(p.operand(1)?)? }),
        "complete_tx" => (0, MbarrierOp::CompleteTx { bytes: d.word(p.operand(1)?)? }),
        "arrive" | "arrive_drop" => {
            // The state is left out where it is not wanted.
            let at = usize::from(!matches!(p.operand(0)?, Operand::Address(..)));
            let state = if at == 1 { d.optional(p.operand(0)?)? } else { None };
            let last = match p.operands.get(at + 1) {
                Some(operand) => Some(d.word(operand)?),
                None => None,
            };
            let expects = p.has("expect_tx");
            let operation = MbarrierOp::Arrive {
                state,
                count: last.filter(|_| !expects),
                expect: last.filter(|_| expects),
                drop: what == "arrive_drop",
                no_complete: p.has("noComplete"),
            };
            (at, operation)
        }
        "test_wait" | "try_wait" => {
            let parity = p.has("parity");
            let t = if parity { Type::U32 } else { Type::B64 };
            let done = match p.operand(0)? {
                Operand::Sink => None,
                operand => Some(d.predicate(operand)?.0),
            };
            let operand = d.value(p.operand(2)?, t)?;
            (1, MbarrierOp::Wait { done, parity, operand, suspend: what == "try_wait" })
        }
        _ => return unsupported(p.opcode),
    };
    let (slot, offset) = d.address(p.operand(address)?)?;
    Ok(Op::Mbarrier { op: operation, space, address: slot, offset })
}
