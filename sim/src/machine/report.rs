//! What every warp waits for, when nothing can go on.

use std::fmt::Write;

use super::Machine;
use super::state::{Cluster, Wait};
use crate::error::{Fault, Kind};

/// The deadlock, with a table of the waits.
pub fn hang(machine: &Machine, clusters: &[Cluster], why: &str) -> Fault {
    let mut text = format!("{why} in {}", machine.launch.kernel.entry.name);
    let mut kind = Kind::Deadlock;
    let mut lines = 0;
    for cta in clusters.iter().flat_map(|cluster| &cluster.ctas) {
        for warp in cta.warps.iter().flatten() {
            for group in &warp.groups {
                lines += 1;
                if lines > 64 {
                    continue;
                }
                let inst = &machine.launch.kernel.code[group.pc as usize];
                let [x, y, z] = cta.id;
                let waits = match &group.wait {
                    None => "can run".to_string(),
                    Some(Wait::Lanes(mask)) => {
                        kind = Kind::Divergence;
                        format!("the lanes {:#010x} to join it", mask & !group.mask)
                    }
                    Some(Wait::Barrier { id, .. }) => {
                        let barrier = &cta.barriers[*id as usize];
                        let needed = if barrier.needed == u32::MAX { 32 * cta.live_warps } else { barrier.needed };
                        format!("barrier {id}: {} of {needed} threads arrived", barrier.arrived)
                    }
                    Some(Wait::Cluster) => "the cluster barrier".into(),
                    Some(Wait::Mbarrier { cta: rank, offset, parity }) => {
                        let owner = clusters.iter().find(|c| c.ctas.iter().any(|other| other.id == cta.id));
                        let object = owner.and_then(|c| {
                            c.ctas[*rank as usize]
                                .mbarriers
                                .live()
                                .into_iter()
                                .find(|(at, _)| at == offset)
                                .map(|(_, o)| o.clone())
                        });
                        let state = object.map_or(String::new(), |o| {
                            format!(
                                ": phase {}, {} of {} arrivals missing, {} bytes missing",
                                o.phase, o.pending, o.expected, o.tx
                            )
                        });
                        let parity = parity.map_or(String::new(), |p| format!(" parity {p}"));
                        format!("mbarrier {offset:#x} of rank {rank}{parity}{state}")
                    }
                    Some(Wait::Wgmma { pending }) => format!("wgmma until {pending} groups are pending"),
                    Some(Wait::Bulk { pending, .. }) => format!("bulk copies until {pending} groups are pending"),
                    Some(Wait::Columns(columns)) => format!("{columns} columns of Tensor Memory"),
                    Some(Wait::Registers { wanted, free }) => {
                        format!("{wanted} registers per thread more; {free} are free")
                    }
                };
                let _ = write!(
                    text,
                    "\n  CTA ({x}, {y}, {z}) warp {:2} lanes {:#010x} PTX line {}: waits for {waits}",
                    warp.index, group.mask, inst.line
                );
            }
        }
    }
    if lines > 64 {
        let _ = write!(text, "\n  and {} more", lines - 64);
    }
    Fault::new(kind, text)
}
