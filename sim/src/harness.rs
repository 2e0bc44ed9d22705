//! Runs PTX without a driver, for tests and tools: one device, memory, launches.

use std::sync::Arc;

use crate::error::{Fault, Kind, Result};
use crate::machine::{Global, Launch, run};
use crate::program::{Kernel, decode};

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic: u32,
    /// Registers of a thread at the start.
    pub registers: u32,
    /// CTAs that run at the same time.
    pub multiprocessors: u32,
    /// Seed of the interleaving.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        let one = [1; 3];
        let (dynamic, registers, multiprocessors) = (0, 128, 4);
        Shape { grid: one, block: [32, 1, 1], cluster: one, dynamic, registers, multiprocessors, seed: 1 }
    }
}

/// A device with its memory and a loaded module.
pub struct Simulator {
    memory: Global,
    kernels: Vec<Arc<Kernel>>,
    globals: Vec<u64>,
    launches: u32,
    instructions: u64,
}

impl Simulator {
    /// Loads PTX text.
    ///
    /// # Errors
    /// [`Kind::Malformed`] or [`Kind::Unsupported`], with the line.
    pub fn new(ptx: &str) -> Result<Self> {
        let module = crate::ptx::parse(ptx)?;
        let lines = Arc::new(ptx.lines().map(String::from).collect::<Vec<_>>());
        let mut memory = Global::default();
        let mut globals = Vec::new();
        for global in &module.globals {
            let mut data = global.initial.clone();
            data.resize(global.bytes.max(1) as usize, 0);
            let address = memory.allocate(data.len(), 0);
            memory.write(address, &data)?;
            globals.push(address);
        }
        let mut kernels = Vec::new();
        for entry in module.entries {
            kernels.push(Arc::new(decode(entry, lines.clone(), module.files.clone())?));
        }
        Ok(Simulator { memory, kernels, globals, launches: 0, instructions: 0 })
    }

    /// Allocates global memory; its bytes count as unwritten.
    pub fn allocate(&mut self, bytes: usize) -> u64 {
        self.memory.allocate(bytes, 0)
    }

    /// Writes global memory.
    ///
    /// # Errors
    /// [`Kind::OutOfBounds`].
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        self.memory.write(address, data)
    }

    /// Reads global memory.
    ///
    /// # Errors
    /// [`Kind::OutOfBounds`].
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> Result<()> {
        self.memory.read(address, out)
    }

    /// Runs a kernel to its end; `params` are the bytes of each parameter.
    ///
    /// # Errors
    /// [`Kind::Launch`] if there is no such kernel or the parameters do not fit; else the first fault of the program.
    pub fn launch(&mut self, kernel: &str, shape: Shape, params: &[&[u8]]) -> Result<()> {
        let Some(kernel) = self.kernels.iter().find(|k| k.entry.name == kernel) else {
            return Fault::err(Kind::Launch, format!("the module has no kernel {kernel}"));
        };
        let entry = &kernel.entry;
        let mut bytes = vec![0; entry.param_bytes as usize];
        if params.len() != entry.params.len() {
            return Fault::err(Kind::Launch, format!("{} takes {} parameters", entry.name, entry.params.len()));
        }
        for (param, &(offset, size)) in params.iter().zip(&entry.params) {
            if param.len() != size as usize {
                return Fault::err(
                    Kind::Launch,
                    format!("a parameter of {} bytes, where {size} are expected", param.len()),
                );
            }
            bytes[offset as usize..][..param.len()].copy_from_slice(param);
        }
        self.launches += 1;
        let launch = Launch {
            kernel: kernel.clone(),
            grid: shape.grid,
            block: shape.block,
            cluster: shape.cluster,
            explicit_cluster: shape.cluster != [1; 3],
            dynamic: shape.dynamic,
            params: bytes,
            globals: self.globals.clone(),
            number: self.launches,
            registers: shape.registers,
            multiprocessors: shape.multiprocessors.max(shape.cluster.iter().product()),
            device: 0,
        };
        let counters = run(&launch, &mut self.memory, shape.seed)?;
        self.instructions += counters.total().instructions;
        Ok(())
    }

    /// Warp instructions of all launches that ended well.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }
}
