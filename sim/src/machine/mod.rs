//! Runs a grid: clusters on a device, their warps interleaved at random.

mod access;
mod address;
mod asynchronous;
mod atomic;
mod banks;
mod barriers;
mod bulk;
mod clock;
mod counters;
mod exchange;
mod fragments;
mod global;
mod launch_control;
mod mbarriers;
mod random;
mod registers;
mod report;
mod setup;
mod shared;
mod state;
mod step;
mod tcgen05;
mod tensor;
mod tensor_memory;
mod trace;

use std::sync::Arc;

pub use counters::{Counters, Work};
pub use global::Global;
pub use random::Random;

use crate::clc::Clusters;
use crate::error::{Fault, Kind, Place, Result};
use crate::program::Kernel;
use state::{Cluster, Warp};

/// What to run, checked by the driver.
pub struct Launch {
    pub kernel: Arc<Kernel>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub explicit_cluster: bool,
    /// Bytes of dynamic shared memory.
    pub dynamic: u32,
    pub params: Vec<u8>,
    /// Addresses of the module's variables.
    pub globals: Vec<u64>,
    /// Identity among all launches; not 0.
    pub number: u32,
    /// Registers of a thread at the start.
    pub registers: u32,
    pub multiprocessors: u32,
    pub device: i32,
}

impl Launch {
    /// The same launch once more.
    pub fn again(&self) -> Launch {
        let (params, globals) = (self.params.clone(), self.globals.clone());
        Launch { kernel: self.kernel.clone(), params, globals, ..*self }
    }

    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(32)
    }

    pub fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }
}

/// Warp instructions without any effect on others after which a program is taken to hang.
const PATIENCE: u64 = 50_000_000;

pub struct Machine<'m> {
    pub launch: &'m Launch,
    pub memory: &'m mut Global,
    pub random: Random,
    /// Warp instructions so far.
    pub time: u64,
    /// When something last changed that another warp could see.
    pub progress: u64,
    pub counters: Counters,
    /// Identity of the next asynchronous operation.
    pub operations: u64,
    /// What has been released through global memory.
    pub released: trace::Released,
    /// Clusters that have not started.
    pub waiting: Clusters,
}

/// Runs a launch to its end.
///
/// # Errors
/// The first fault of the program.
pub fn run(launch: &Launch, memory: &mut Global, seed: u64) -> Result<Counters> {
    memory.reach = Some(launch.device);
    let result = run_on(launch, memory, seed);
    memory.reach = None;
    result
}

fn run_on(launch: &Launch, memory: &mut Global, seed: u64) -> Result<Counters> {
    let mut machine = Machine {
        launch,
        memory,
        random: Random::new(seed),
        time: 0,
        progress: 0,
        counters: Counters { reached: vec![false; launch.kernel.code.len()], ..Counters::default() },
        operations: 0,
        released: Default::default(),
        waiting: Clusters::new(launch.grid, launch.cluster)?,
    };
    let limit = (launch.multiprocessors / launch.cluster_size()).max(1) as usize;
    let mut residents: Vec<Cluster> = Vec::new();
    let mut number = 0;
    loop {
        while residents.len() < limit
            && let Some(index) = machine.waiting.start()
        {
            residents.push(machine.start(index, number));
            number += 1;
        }
        if residents.is_empty() {
            return Ok(machine.counters);
        }
        let at = machine.random.below(residents.len());
        machine.turn(&mut residents[at])?;
        if residents[at].done() {
            let cluster = residents.swap_remove(at);
            machine.finish(&cluster)?;
        }
        if machine.time - machine.progress > PATIENCE {
            return Err(report::hang(&machine, &residents, "no warp has had any effect for a long time"));
        }
    }
}

impl Machine<'_> {
    /// Lets one warp of a cluster run for a while, then ends the asynchronous operations that are due.
    fn turn(&mut self, cluster: &mut Cluster) -> Result<()> {
        let mut ready = Vec::with_capacity(64);
        for (c, cta) in cluster.ctas.iter().enumerate() {
            for (w, warp) in cta.warps.iter().enumerate() {
                let can = |warp: &Warp| {
                    warp.groups.iter().any(|g| g.wait.is_none() || g.tried < cluster.changes && !g.stuck())
                };
                if warp.as_deref().is_some_and(can) {
                    ready.push((c, w));
                }
            }
        }
        if ready.is_empty() {
            match cluster.next_due() {
                Some(due) => self.time = self.time.max(due),
                None if cluster.ctas.iter().all(|cta| cta.live_warps == 0) => {}
                None => return Err(report::hang(self, std::slice::from_ref(cluster), "every warp waits")),
            }
        } else {
            let (c, w) = ready[self.random.below(ready.len())];
            let scale = self.random.below(9);
            let length = 1 + self.random.below(1 << scale);
            if let Some(mut warp) = cluster.ctas[c].warps[w].take() {
                let result = self.quantum(cluster, &mut warp, length);
                let dead = warp.live == 0;
                cluster.ctas[c].warps[w] = (!dead).then_some(warp);
                result?;
            }
        }
        self.complete_due(cluster)
    }

    fn quantum(&mut self, cluster: &mut Cluster, warp: &mut Warp, length: usize) -> Result<()> {
        let first = self.time;
        for _ in 0..length {
            // The lowest program counter first, so that lanes meet again; now and then another, so that none starves.
            let changes = cluster.changes;
            let ready = |g: &state::Group| g.wait.is_none() || g.tried < changes && !g.stuck();
            let candidates = warp.groups.iter().enumerate().filter(|(_, g)| ready(g));
            let chosen = match warp.groups.len() {
                0 => break,
                1 => candidates.map(|(i, _)| i).next(),
                count if self.random.below(64) == 0 => {
                    let skip = self.random.below(count);
                    candidates.map(|(i, _)| i).cycle().take(count).nth(skip)
                }
                _ => candidates.min_by_key(|(_, g)| g.pc).map(|(i, _)| i),
            };
            let Some(group) = chosen else { break };
            self.time += 1;
            warp.instructions += 1;
            let pc = warp.groups[group].pc;
            self.step(cluster, warp, group).map_err(|fault| fault.at(|| self.place(cluster, warp, pc)))?;
        }
        self.count(warp).instructions += self.time - first;
        Ok(())
    }

    fn place(&self, cluster: &Cluster, warp: &Warp, pc: u32) -> Place {
        self.place_of(cluster.ctas[warp.cta].id, warp.index, pc)
    }

    fn place_of(&self, cta: [u32; 3], warp: u32, pc: u32) -> Place {
        let kernel = &self.launch.kernel;
        let inst = &kernel.code[pc as usize];
        let file = kernel.files.iter().find(|(index, _)| *index == inst.source.0);
        Place {
            kernel: kernel.entry.name.clone(),
            ptx_line: inst.line,
            ptx: (inst.line as usize).checked_sub(1).and_then(|i| kernel.text.get(i)).cloned().unwrap_or_default(),
            source: file.map(|(_, name)| (name.clone(), inst.source.1)),
            cta,
            warp,
            lane: None,
        }
    }

    /// What must hold when a cluster has ended.
    fn finish(&mut self, cluster: &Cluster) -> Result<()> {
        for cta in &cluster.ctas {
            for (offset, object) in cta.mbarriers.live() {
                object.check_exit().map_err(|fault| {
                    let [x, y, z] = cta.id;
                    let kernel = &self.launch.kernel.entry.name;
                    let message =
                        format!("{} (mbarrier at {offset:#x}, CTA ({x}, {y}, {z}) of {kernel})", fault.message);
                    Fault::new(Kind::Exit, message)
                })?;
            }
        }
        self.counters.clusters += 1;
        Ok(())
    }
}
