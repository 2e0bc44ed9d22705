//! The state in which clusters start.

use super::clock::Knowledge;
use super::global::{PARAM_WINDOW, SHARED_WINDOW};
use super::shared::{RESERVED, Shared};
use super::state::{Barrier, Cluster, Cta, Group, Warp, Warpgroup};
use super::{Launch, Machine};
use crate::program::{Constant, Lanes};
use crate::ptx::Special;
use crate::ptx::ast::Symbol;

impl Launch {
    /// Offset of dynamic shared memory.
    pub fn dynamic_offset(&self) -> u32 {
        let entry = &self.kernel.entry;
        (RESERVED + entry.shared_bytes).next_multiple_of(entry.dynamic_align.max(16))
    }
}

impl Machine<'_> {
    /// A cluster at `index`, in units of clusters.
    pub fn start(&mut self, index: [u32; 3], number: u32) -> Cluster {
        let launch = self.launch;
        let size = launch.cluster_size();
        let mut cluster = Cluster {
            number,
            ctas: Vec::new(),
            barrier: Barrier::default(),
            pending: Vec::new(),
            tensor: (0..size * launch.warps()).map(|_| Default::default()).collect(),
            tensor_operations: vec![Vec::new(); (size * launch.warps()) as usize],
            pair_requests: Vec::new(),
            changes: 1,
            agents: Vec::new(),
        };
        for rank in 0..size {
            let [cx, cy, _] = launch.cluster;
            let inner = [rank % cx, rank / cx % cy, rank / cx / cy];
            let id = [0, 1, 2].map(|d| index[d] + inner[d]);
            let mut cta = Cta {
                id,
                shared: Shared::new(launch.dynamic_offset() + launch.dynamic),
                mbarriers: Default::default(),
                mbarrier_range: (u32::MAX, 0),
                clocks: Default::default(),
                barriers: Default::default(),
                warps: Vec::new(),
                warpgroups: Vec::new(),
                tensor: Default::default(),
                requests: Default::default(),
                free_registers: 0,
                live_warps: launch.warps(),
                exited: false,
            };
            for group in 0..launch.warps().div_ceil(4) {
                let agent = cluster.new_agent(format!("wgmma of CTA {rank}, warpgroup {group}"));
                cta.warpgroups.push(Warpgroup { agent, ..Warpgroup::default() });
            }
            for warp in 0..launch.warps() {
                let agent = cluster.new_agent(format!("CTA {id:?} warp {warp}"));
                let bulk_agent = cluster.new_agent(format!("bulk copies of CTA {id:?} warp {warp}"));
                // Clocks are as long as there are agents, so there are none that never act.
                let mut tensor_agent = |what: &str| match launch.kernel.tensor {
                    true => cluster.new_agent(format!("{what} of CTA {id:?} warp {warp}")),
                    false => agent,
                };
                let (access, tensor) = (tensor_agent("tcgen05.ld and st"), tensor_agent("tcgen05 operations"));
                let agents = [agent, bulk_agent, access, tensor];
                cta.warps.push(Some(Box::new(self.warp(id, inner, rank, warp, agents))));
            }
            cluster.ctas.push(cta);
        }
        cluster
    }

    fn warp(&self, id: [u32; 3], inner: [u32; 3], rank: u32, index: u32, agents: [u32; 4]) -> Warp {
        let launch = self.launch;
        let kernel = &launch.kernel;
        let lanes = (launch.threads() - 32 * index).min(32);
        let live = u32::MAX >> (32 - lanes);
        let slots = kernel.slots as usize;
        let mut registers = vec![[0; 32]; slots];
        let mut valid = vec![0; slots];
        for &(slot, constant) in &kernel.constants {
            registers[slot as usize] = self.constant(constant, id, inner, rank, index);
            valid[slot as usize] = u32::MAX;
        }
        Warp {
            index,
            cta: rank as usize,
            registers,
            valid,
            stamps: vec![Default::default(); slots],
            busy: vec![0; slots],
            busy_list: Vec::new(),
            predicates: vec![0; kernel.predicates as usize],
            predicates_valid: vec![0; kernel.predicates as usize],
            groups: vec![Group { pc: 0, mask: live, wait: None, tried: 0, token: None }],
            live,
            agent: agents[0],
            clock: 1,
            bulk_agent: agents[1],
            access_agent: agents[2],
            access_count: 0,
            tensor_agent: agents[3],
            tensor_count: 0,
            knows: Knowledge::default(),
            solo: None,
            instructions: 0,
            fenced_at: None,
            wgmma_issued: 0,
            wgmma_group: 0,
            wgmma_open: false,
            bulk: Default::default(),
            max_registers: launch.registers,
            cluster_token: None,
            local: vec![0; kernel.entry.local_bytes as usize * 32],
            copies: Vec::new(),
            copy_groups: [0; 32],
        }
    }

    fn constant(&self, constant: Constant, id: [u32; 3], inner: [u32; 3], rank: u32, warp: u32) -> Lanes {
        let launch = self.launch;
        let same = |value: u64| [value; 32];
        let word = |value: u32| [u64::from(value); 32];
        let thread = |lane: usize| 32 * warp + lane as u32;
        let of = |triple: [u32; 3], axis: u8| word(triple.get(axis as usize).copied().unwrap_or(0));
        let shared = |offset: u32| rank << 24 | offset;
        let clusters = [0, 1, 2].map(|d| launch.grid[d] / launch.cluster[d]);
        match constant {
            Constant::Value(value) => same(value),
            Constant::Symbol(Symbol::Param(offset), add) => same(u64::from(offset).wrapping_add_signed(add)),
            Constant::Symbol(Symbol::Shared(offset), add) => {
                same(u64::from(shared(RESERVED + offset)).wrapping_add_signed(add))
            }
            Constant::Symbol(Symbol::Dynamic, add) => {
                same(u64::from(shared(launch.dynamic_offset())).wrapping_add_signed(add))
            }
            Constant::Symbol(Symbol::Local(offset), add) => same(u64::from(offset).wrapping_add_signed(add)),
            Constant::Symbol(Symbol::Global(index), add) => {
                same(launch.globals.get(index as usize).copied().unwrap_or(0).wrapping_add_signed(add))
            }
            Constant::Special(special) => match special {
                Special::Tid(axis) => {
                    let [x, y, _] = launch.block;
                    std::array::from_fn(|lane| {
                        let t = thread(lane);
                        u64::from([t % x, t / x % y, t / x / y, 0][axis as usize & 3])
                    })
                }
                Special::Ntid(axis) => of(launch.block, axis),
                Special::Ctaid(axis) => of(id, axis),
                Special::Nctaid(axis) => of(launch.grid, axis),
                Special::Clusterid(axis) => of([0, 1, 2].map(|d| id[d] / launch.cluster[d]), axis),
                Special::Nclusterid(axis) => of(clusters, axis),
                Special::ClusterCtaid(axis) => of(inner, axis),
                Special::ClusterNctaid(axis) => of(launch.cluster, axis),
                Special::ClusterCtarank => word(rank),
                Special::ClusterNctarank => word(launch.cluster_size()),
                Special::Laneid => std::array::from_fn(|lane| lane as u64),
                Special::Warpid => word(warp),
                Special::Nwarpid => word(64),
                Special::Smid => {
                    word((id[0] + launch.grid[0] * (id[1] + launch.grid[1] * id[2])) % launch.multiprocessors)
                }
                Special::Nsmid => word(launch.multiprocessors),
                Special::Gridid => same(launch.number.into()),
                Special::LanemaskEq => std::array::from_fn(|lane| 1 << lane),
                Special::LanemaskLt => std::array::from_fn(|lane| (1 << lane) - 1),
                Special::LanemaskLe => std::array::from_fn(|lane| (2 << lane) - 1),
                Special::LanemaskGt => std::array::from_fn(|lane| 0xFFFF_FFFF & !((2 << lane) - 1)),
                Special::LanemaskGe => std::array::from_fn(|lane| 0xFFFF_FFFF & !((1 << lane) - 1)),
                Special::DynamicSmemSize => word(launch.dynamic),
                Special::TotalSmemSize | Special::AggrSmemSize => word(launch.dynamic_offset() + launch.dynamic),
                Special::ReservedSmemBegin => word(0),
                Special::IsExplicitCluster => word(launch.explicit_cluster.into()),
                Special::Clock | Special::Clock64 | Special::Globaltimer => same(self.time),
            },
        }
    }
}

/// The generic address of one in a window.
pub fn generic(window: crate::ptx::ast::Space, address: u64) -> u64 {
    use crate::ptx::ast::Space;
    match window {
        Space::Shared | Space::SharedCluster => SHARED_WINDOW | address & 0xFFFF_FFFF,
        Space::Local => super::global::LOCAL_WINDOW | address & 0xFFFF_FFFF,
        Space::Param => PARAM_WINDOW | address & 0xFFFF_FFFF,
        _ => address,
    }
}
