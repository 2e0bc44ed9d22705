//! `atom` and `red`.

use super::Machine;
use super::address::{Place, aligned, in_lane};
use super::registers::lanes;
use super::state::{Cluster, Warp};
use super::trace::Intent;
use crate::error::{Fault, Kind, Result};
use crate::program::{Atomic, AtomicOp, Lanes, ftz};

impl Machine<'_> {
    pub fn atomic(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Atomic) -> Result<()> {
        let addresses = *warp.get(op.address, mask)?;
        let bytes = op.bits as usize / 8;
        let intent = if op.returns { Intent::Update } else { Intent::Reduce };
        for (element, &b) in op.b.iter().enumerate() {
            let (b, c) = (*warp.get(b, mask)?, *warp.get(op.c, mask)?);
            let mut out: Lanes = [0; 32];
            for lane in lanes(mask) {
                let fail = |f| in_lane(f, lane);
                let place = self.locate_in(cluster, warp, lane, op.space, (addresses[lane], op.offset))?;
                let mut old = [0u8; 8];
                match place {
                    Place::Shared(..) if op.b.len() > 1 => {
                        return Fault::err(Kind::InvalidOperand, "a vector atomic on shared memory");
                    }
                    Place::Shared(cta, offset) => {
                        aligned(offset.into(), bytes as u32).map_err(fail)?;
                        let (target, who) = (&mut cluster.ctas[cta], warp.who(lane as u32, true));
                        let read = target.load(&cluster.agents, offset, bytes as u32, who).map_err(fail)?;
                        old[..bytes].copy_from_slice(read);
                        let new = apply(op.op, op.bits, u64::from_le_bytes(old), b[lane], c[lane], false);
                        let new = &new.to_le_bytes()[..bytes];
                        target.store(&cluster.agents, offset, new, true, who).map_err(fail)?;
                        self.count(warp).shared_written += bytes as u64;
                        self.progress = self.time;
                    }
                    Place::Global(address) => {
                        aligned(address, (bytes * op.b.len()) as u32).map_err(fail)?;
                        let address = address + (element * bytes) as u64;
                        let who = warp.who(lane as u32, true);
                        self.note_global(cluster, address, bytes, intent, who).map_err(fail)?;
                        // Sums of gradients and the like are nobody's flags, and there are many of them.
                        if op.returns || !op.op.is_float() {
                            self.synchronise(cluster, warp, lane as u32, address, intent);
                        }
                        let (allocation, start) = self.memory.range(address, bytes).map_err(fail)?;
                        allocation.check_written(start, bytes).map_err(fail)?;
                        old[..bytes].copy_from_slice(&allocation.bytes[start..start + bytes]);
                        let new = apply(op.op, op.bits, u64::from_le_bytes(old), b[lane], c[lane], true);
                        allocation.bytes[start..start + bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
                        self.count(warp).global_written += bytes as u64;
                    }
                    other => return Fault::err(Kind::InvalidOperand, format!("an atomic operation at {other:?}")),
                }
                out[lane] = u64::from_le_bytes(old);
            }
            if let Some(Some(d)) = op.d.get(element) {
                warp.set(*d, mask, &out)?;
            }
        }
        Ok(())
    }
}

/// `flush`: sums of f32 lose subnormals, as in global memory and not in shared.
fn apply(op: AtomicOp, bits: u32, old: u64, b: u64, c: u64, flush: bool) -> u64 {
    let all = u64::MAX >> (64 - bits);
    let (b, c) = (b & all, c & all);
    let signed = |x: u64| (x << (64 - bits)) as i64 >> (64 - bits);
    let float = |x: u64| if flush { ftz(f32::from_bits(x as u32)) } else { f32::from_bits(x as u32) };
    let halves = |f: fn(u16, u16) -> u16| {
        (0..bits / 16)
            .fold(0, |out, i| out | u64::from(f((old >> (16 * i)) as u16, (b >> (16 * i)) as u16)) << (16 * i))
    };
    let new = match op {
        AtomicOp::Add => old.wrapping_add(b),
        AtomicOp::AddF32 => {
            let sum = float(old) + float(b);
            u64::from(if flush { ftz(sum) } else { sum }.to_bits())
        }
        AtomicOp::AddF64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        AtomicOp::AddF16 => halves(|x, y| (half::f16::from_bits(x) + half::f16::from_bits(y)).to_bits()),
        AtomicOp::AddBf16 => halves(|x, y| (half::bf16::from_bits(x) + half::bf16::from_bits(y)).to_bits()),
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
