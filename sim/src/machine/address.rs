//! Addresses: what they name, and the instructions that convert them.

use super::Machine;
use super::global::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use super::registers::lanes;
use super::setup::generic;
use super::state::{Cluster, Warp};
use crate::error::{Fault, Kind, Result};
use crate::program::{Lanes, Op};
use crate::ptx::ast::Space;

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Global(u64),
    /// CTA of the cluster and offset.
    Shared(usize, u32),
    Local(u64),
    Param(u64),
}

impl Place {
    /// CTA and offset in shared memory.
    pub fn shared(self) -> Result<(usize, u32)> {
        match self {
            Place::Shared(cta, offset) => Ok((cta, offset)),
            other => Fault::err(Kind::InvalidOperand, format!("a shared address is needed, not {other:?}")),
        }
    }
}

impl Machine<'_> {
    /// Finds what an address of a space names.
    pub fn locate(&self, cluster: &Cluster, cta: usize, space: Space, address: u64) -> Result<Place> {
        let shared = |word: u32, own: bool| {
            let (rank, offset) = ((word >> 24) as usize, word & 0xFF_FFFF);
            if rank >= cluster.ctas.len() {
                let size = cluster.ctas.len();
                return Fault::err(
                    Kind::OutOfBounds,
                    format!("shared address {word:#x} names rank {rank} of a cluster of {size} CTAs"),
                );
            }
            if own && rank != cta {
                return Fault::err(
                    Kind::OutOfBounds,
                    format!(".shared::cta address {word:#x} names the CTA of rank {rank}, not the executing one"),
                );
            }
            if cluster.ctas[rank].exited && rank != cta {
                return Fault::err(Kind::Exit, format!("shared address {word:#x} names a CTA that has exited"));
            }
            Ok(Place::Shared(rank, offset))
        };
        match space {
            Space::Shared => shared(address as u32, true),
            Space::SharedCluster => shared(address as u32, false),
            Space::Local => Ok(Place::Local(address & 0xFFFF_FFFF)),
            Space::Param => Ok(Place::Param(address & 0xFFFF_FFFF)),
            Space::Global | Space::Const => Ok(Place::Global(address)),
            Space::Generic => match address & WINDOW {
                SHARED_WINDOW => shared(address as u32, false),
                LOCAL_WINDOW => Ok(Place::Local(address & 0xFFFF_FFFF)),
                PARAM_WINDOW => Ok(Place::Param(address & 0xFFFF_FFFF)),
                _ => Ok(Place::Global(address)),
            },
        }
    }

    /// As `locate`, for the operand `base + offset` of a lane.
    pub fn locate_in(
        &self,
        cluster: &Cluster,
        warp: &Warp,
        lane: usize,
        space: Space,
        (base, offset): (u64, i64),
    ) -> Result<Place> {
        let address = base.wrapping_add_signed(offset);
        let address = if short(space) { address & 0xFFFF_FFFF } else { address };
        self.locate(cluster, warp.cta, space, address).map_err(|f| in_lane(f, lane))
    }

    /// `cvta`, `mapa`, `getctarank`.
    pub fn convert_address(&mut self, cluster: &Cluster, warp: &mut Warp, mask: u32, op: &Op) -> Result<()> {
        let mut out: Lanes = [0; 32];
        match op {
            Op::Convert { wide: to, generic: Some(space), d, s } => {
                let value = *warp.get(*s, mask)?;
                for lane in lanes(mask) {
                    out[lane] = match to {
                        true if matches!(space, Space::Global | Space::Const) => value[lane],
                        true => value[lane] & 0xFFFF_FFFF,
                        false => generic(*space, value[lane]),
                    };
                }
                warp.set(*d, mask, &out)
            }
            Op::MapRank { d, address, rank } => {
                let (value, rank) = (warp.get(*address, mask)?, warp.get(*rank, mask)?);
                for lane in lanes(mask) {
                    let size = cluster.ctas.len() as u64;
                    if rank[lane] & 0xFFFF_FFFF >= size {
                        return Fault::err(
                            Kind::OutOfBounds,
                            format!("mapa to rank {} of a cluster of {size} CTAs", rank[lane] & 0xFFFF_FFFF),
                        );
                    }
                    out[lane] = value[lane] & !0xFF00_0000 | rank[lane] << 24;
                }
                warp.set(*d, mask, &out)
            }
            Op::GetRank { d, address } => {
                let value = warp.get(*address, mask)?;
                for lane in lanes(mask) {
                    out[lane] = value[lane] >> 24 & 255;
                }
                warp.set(*d, mask, &out)
            }
            _ => Ok(()),
        }
    }
}

/// Whether addresses of the space are 32-bit.
fn short(space: Space) -> bool {
    matches!(space, Space::Shared | Space::SharedCluster | Space::Local | Space::Param)
}

pub fn in_lane(fault: Fault, lane: usize) -> Fault {
    Fault { message: format!("{} (lane {lane})", fault.message), ..fault }
}

pub fn aligned(address: u64, bytes: u32) -> Result<()> {
    if bytes.is_power_of_two() && !address.is_multiple_of(bytes.into()) {
        return Fault::err(Kind::Misaligned, format!("{bytes} bytes at {address:#x}"));
    }
    Ok(())
}
