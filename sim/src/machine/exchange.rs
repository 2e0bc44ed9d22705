//! Exchange among the lanes of a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync").

use super::Machine;
use super::registers::lanes;
use super::state::Warp;
use super::step::Flow;
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op, ShuffleMode, Slot, VoteMode};

impl Machine<'_> {
    pub fn exchange(&mut self, warp: &mut Warp, mask: u32, op: &Op) -> Result<Flow> {
        let members = |slot: Slot| -> Result<u32> {
            let members = warp.uniform(slot, mask, "the member mask")? as u32;
            if mask & !members != 0 {
                let lane = (mask & !members).trailing_zeros();
                return Fault::err(
                    Kind::InvalidOperand,
                    format!("lane {lane} executes the instruction, but its mask {members:#010x} leaves it out"),
                );
            }
            Ok(members)
        };
        let members = match op {
            Op::WarpSync { mask }
            | Op::Shuffle { mask, .. }
            | Op::Vote { mask, .. }
            | Op::Match { mask, .. }
            | Op::Reduce { mask, .. }
            | Op::Elect { mask, .. } => members(*mask)?,
            _ => mask,
        };
        if let Some(wait) = self.together(warp, mask, members) {
            return Ok(wait);
        }
        let mut out: Lanes = [0; 32];
        match op {
            Op::WarpSync { .. } => warp.meet(mask),
            Op::Shuffle { mode, d, p, s, b, c, .. } => {
                let (known, value) = (warp.having(*s, mask)?, warp.registers[*s as usize]);
                let (b, c) = (warp.get(*b, mask)?, warp.get(*c, mask)?);
                let mut valid = 0;
                let mut inside = 0;
                for lane in lanes(mask) {
                    let (b, c) = (b[lane] as u32 & 31, c[lane] as u32);
                    let (clamp, segment) = (c & 31, c >> 8 & 31);
                    let own = lane as u32;
                    let (low, high) = (own & segment, own & segment | clamp & !segment);
                    let (source, ok) = match mode {
                        ShuffleMode::Up => (own.wrapping_sub(b), own as i32 - b as i32 >= high as i32),
                        ShuffleMode::Down => (own + b, own + b <= high),
                        ShuffleMode::Butterfly => (own ^ b, own ^ b <= high),
                        ShuffleMode::Index => (low | b & !segment, low | b & !segment <= high),
                    };
                    let source = if ok { source as usize & 31 } else { lane };
                    inside |= u32::from(ok) << lane;
                    if mask >> source & 1 == 0 {
                        return Fault::err(
                            Kind::InvalidOperand,
                            format!("lane {lane} shuffles from lane {source}, which does not take part"),
                        );
                    }
                    out[lane] = value[source];
                    valid |= (known >> source & 1) << lane;
                }
                warp.set_some(*d, mask, &out, valid)?;
                if let Some(p) = p {
                    warp.set_predicate(*p, mask, inside);
                }
            }
            Op::Vote { mode, d, p, .. } => {
                let votes = warp.predicate(*p, mask)? & mask;
                let result = match mode {
                    VoteMode::All => votes == mask,
                    VoteMode::Any => votes != 0,
                    VoteMode::Uniform => votes == 0 || votes == mask,
                    VoteMode::Ballot => {
                        warp.set(*d, mask, &[votes.into(); 32])?;
                        return Ok(Flow::Next);
                    }
                };
                warp.set_predicate(*d, mask, u32::from(result).wrapping_neg());
            }
            Op::Match { all, d, p, s, bits, .. } => {
                let value = warp.get(*s, mask)?.map(|v| v & u64::MAX >> (64 - bits));
                let equal =
                    |lane: usize| lanes(mask).filter(|&o| value[o] == value[lane]).fold(0u32, |m, o| m | 1 << o);
                let everywhere = equal(mask.trailing_zeros() as usize & 31) == mask;
                for lane in lanes(mask) {
                    out[lane] = match all {
                        true => u64::from(if everywhere { mask } else { 0 }),
                        false => equal(lane).into(),
                    };
                }
                warp.set(*d, mask, &out)?;
                if let Some(p) = p {
                    warp.set_predicate(*p, mask, u32::from(everywhere).wrapping_neg());
                }
            }
            Op::Reduce { f, d, s, .. } => {
                let value = warp.get(*s, mask)?;
                let total = lanes(mask).map(|lane| value[lane]).reduce(f).unwrap_or(0);
                warp.set(*d, mask, &[total; 32])?;
            }
            Op::Elect { d, p, .. } => {
                let leader = mask.trailing_zeros();
                if let Some(d) = d {
                    warp.set(*d, mask, &[leader.into(); 32])?;
                }
                if let Some(p) = p {
                    warp.set_predicate(*p, mask, 1 << leader);
                }
            }
            Op::ActiveMask { d } => warp.set(*d, mask, &[mask.into(); 32])?,
            _ => {}
        }
        Ok(Flow::Next)
    }
}
