//! `atom` and `red`.

use super::Machine;
use super::access::{Place, aligned, in_lane};
use super::shared::{Proxy, Who};
use super::state::{Cluster, Warp};
use super::step::lanes;
use crate::error::{Fault, Kind, Result};
use crate::program::{AtomicOp, Lanes, Op};
use crate::ptx::ast::Space;

impl Machine<'_> {
    pub fn atomic(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        let Op::Atomic { space, op, bits, d, address, offset, b, c } = op else { return Ok(()) };
        let (addresses, b, c) = (*warp.get(*address, mask)?, *warp.get(*b, mask)?, *warp.get(*c, mask)?);
        let bytes = (*bits / 8) as usize;
        let mut out: Lanes = [0; 32];
        for lane in lanes(mask) {
            let mut at = addresses[lane].wrapping_add_signed(*offset);
            if matches!(space, Space::Shared | Space::SharedCluster) {
                at &= 0xFFFF_FFFF;
            }
            let place = self.locate(cluster, warp.cta, *space, at).map_err(|f| in_lane(f, lane))?;
            let fail = |f| in_lane(f, lane);
            let mut old = [0u8; 8];
            match place {
                Place::Shared(cta, offset) => {
                    aligned(offset.into(), bytes as u32).map_err(fail)?;
                    let target = &mut cluster.ctas[cta];
                    target.shared.check(offset, bytes as u32).map_err(fail)?;
                    target.mbarriers.check_access(offset, bytes as u32).map_err(fail)?;
                    target.shared.check_written(offset, bytes as u32).map_err(fail)?;
                    let who = Who {
                        epoch: warp.epoch(),
                        knows: &warp.knows,
                        proxy: Proxy::Generic,
                        atomic: true,
                        swizzle: 0,
                    };
                    let agents = &cluster.agents;
                    target
                        .shared
                        .note_write(offset, bytes as u32, who, &|e| agents[e.agent() as usize].clone())
                        .map_err(fail)?;
                    let range = offset as usize..offset as usize + bytes;
                    old[..bytes].copy_from_slice(&target.shared.bytes[range.clone()]);
                    let new = apply(*op, *bits, u64::from_le_bytes(old), b[lane], c[lane]);
                    target.shared.bytes[range].copy_from_slice(&new.to_le_bytes()[..bytes]);
                    self.progress = self.time;
                }
                Place::Global(address) => {
                    aligned(address, bytes as u32).map_err(fail)?;
                    self.note_global(cluster, warp, address, bytes, true, true).map_err(fail)?;
                    let (allocation, start) = self.memory.range(address, bytes).map_err(fail)?;
                    allocation.check_written(start, bytes).map_err(fail)?;
                    old[..bytes].copy_from_slice(&allocation.bytes[start..start + bytes]);
                    let new = apply(*op, *bits, u64::from_le_bytes(old), b[lane], c[lane]);
                    allocation.bytes[start..start + bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
                    self.counters.global_written += bytes as u64;
                }
                other => return Fault::err(Kind::InvalidOperand, format!("an atomic operation at {other:?}")),
            }
            out[lane] = u64::from_le_bytes(old);
        }
        match d {
            Some(d) => warp.set(*d, mask, &out),
            None => Ok(()),
        }
    }
}

fn apply(op: AtomicOp, bits: u32, old: u64, b: u64, c: u64) -> u64 {
    let all = u64::MAX >> (64 - bits);
    let (b, c) = (b & all, c & all);
    let signed = |x: u64| (x << (64 - bits)) as i64 >> (64 - bits);
    let float = |x: u64| f32::from_bits(x as u32);
    let pairs = |f: fn(u16, u16) -> u16| {
        u64::from(f(old as u16, b as u16)) | u64::from(f((old >> 16) as u16, (b >> 16) as u16)) << 16
    };
    let new = match op {
        AtomicOp::Add => old.wrapping_add(b),
        AtomicOp::AddF32 => u64::from((float(old) + float(b)).to_bits()),
        AtomicOp::AddF64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        AtomicOp::AddF16x2 => pairs(|x, y| (half::f16::from_bits(x) + half::f16::from_bits(y)).to_bits()),
        AtomicOp::AddBf16x2 => pairs(|x, y| (half::bf16::from_bits(x) + half::bf16::from_bits(y)).to_bits()),
        AtomicOp::Min => old.min(b),
        AtomicOp::Max => old.max(b),
        AtomicOp::MinSigned => signed(old).min(signed(b)) as u64,
        AtomicOp::MaxSigned => signed(old).max(signed(b)) as u64,
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::Swap => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    };
    new & all
}
