//! Cluster launch control (PTX ISA 9.7.13.17 and 9.7.13.18): a running cluster takes over one that has not started.

use super::Machine;
use super::asynchronous::{Action, Target};
use super::clock::Epoch;
use super::registers::lanes;
use super::state::{Cluster, Warp};
use crate::clc::{RESPONSE_BYTES, Response};
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op};
use crate::ptx::ast::Space;

impl Machine<'_> {
    pub fn launch_control(&mut self, cluster: &mut Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        match op {
            Op::TryCancel { all, response, barrier } => {
                for lane in lanes(mask) {
                    let read = |(slot, offset): (u32, i64)| -> Result<u64> {
                        Ok(warp.get(slot, 1 << lane)?[lane].wrapping_add_signed(offset) & 0xFFFF_FFFF)
                    };
                    let (to, signal) = (read(*response)?, read(*barrier)?);
                    self.try_cancel(cluster, warp, lane, *all, (to, signal))?;
                }
                warp.advance();
                Ok(())
            }
            Op::IsCanceled { p, s } => {
                let mut result = 0;
                for lane in lanes(mask) {
                    let response = response(warp, *s, lane)?;
                    cluster.ctas[warp.cta].requests.observe(response);
                    result |= u32::from(response.is_canceled()) << lane;
                }
                warp.set_predicate(*p, mask, result);
                Ok(())
            }
            Op::FirstCtaid { d, s } => {
                let mut out: [Lanes; 3] = [[0; 32]; 3];
                for lane in lanes(mask) {
                    let index = response(warp, *s, lane)?.first_ctaid()?;
                    (0..3).for_each(|axis| out[axis][lane] = index[axis].into());
                }
                d.iter().try_for_each(|&(slot, axis)| warp.set(slot, mask, &out[axis as usize]))
            }
            _ => Ok(()),
        }
    }

    fn try_cancel(&mut self, cluster: &mut Cluster, warp: &Warp, lane: usize, all: bool, at: (u64, u64)) -> Result<()> {
        cluster.ctas[warp.cta].requests.check_submit()?;
        let (_, offset) = self.locate(cluster, warp.cta, Space::Shared, at.0)?.shared()?;
        let (_, signal) = self.mbarrier_at(cluster, warp.cta, Space::Shared, at.1)?;
        if !offset.is_multiple_of(RESPONSE_BYTES) {
            return Fault::err(Kind::Misaligned, format!("a response of try_cancel at {offset:#x}"));
        }
        let ctas = if all { 0..cluster.ctas.len() } else { warp.cta..warp.cta + 1 };
        let mut targets = Vec::new();
        for cta in ctas {
            self.knows_init(cluster, cta, signal, warp, lane)?;
            targets.push(Target { cta, mbarrier: (cta, signal), epoch: self.signal_epoch(cluster, cta, signal)? });
        }
        self.issue_copy(cluster, warp, lane, Epoch::default(), Action::Respond { offset, targets });
        Ok(())
    }
}

/// The response that a lane holds in a 128-bit register.
fn response(warp: &Warp, slot: u32, lane: usize) -> Result<Response> {
    let mut bytes = [0; 16];
    for half in 0..2 {
        let word = warp.get(slot + half, 1 << lane)?[lane];
        bytes[8 * half as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }
    Response::decode(&bytes)
}
