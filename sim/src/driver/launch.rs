//! Launches: the checks of the driver, then the machine.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::{CUlaunchAttributeID as Id, CUlaunchConfig, CUresult};

use super::device::REGISTERS;
use super::library::registers;
use super::stream::Node;
use super::{Driver, Total, work};
use crate::machine::{Launch, run};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
/// Shared memory of a multiprocessor that CTAs can have, with 1 KiB of the system for each.
const SHARED: u32 = 228 << 10;

/// What a configuration asks for.
struct Request {
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    dynamic: u32,
}

impl Driver {
    /// Checks a launch and takes its parameters.
    ///
    /// # Safety
    /// `params` points to a pointer for each parameter of the kernel.
    unsafe fn prepare(
        &mut self,
        function: usize,
        request: &Request,
        stream: usize,
        params: *mut *mut c_void,
    ) -> Result<Launch, CUresult> {
        // PTX is compiled for no context in particular: the stream says where the kernel runs.
        let device = self.stream(stream)?.device;
        let on = device as usize;
        let refuse = |what: String| {
            eprintln!("cudasim: launch refused: {what}");
        };
        let function = self.kernels.get(&function).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let entry = &function.kernel.entry;
        let &Request { grid, block, dynamic, .. } = request;
        let threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
        if grid.contains(&0) || block.contains(&0) || grid[1] > 65535 || grid[2] > 65535 || grid[0] > i32::MAX as u32 {
            refuse(format!("grid {grid:?}, block {block:?}"));
            return Err(INVALID);
        }
        let most = entry.max_threads.map_or(1024, |t| t.iter().product());
        if threads > 1024 || block[2] > 64 || threads > u64::from(most) {
            refuse(format!("a block of {threads} threads, where {most} are allowed"));
            return Err(INVALID);
        }
        if let Some(required) = entry.required_threads.filter(|r| *r != block) {
            refuse(format!("a block of {block:?}, where {required:?} are required"));
            return Err(INVALID);
        }
        if dynamic > function.max_dynamic[on] {
            refuse(format!(
                "{dynamic} bytes of dynamic shared memory, where {} are allowed on device {device}",
                function.max_dynamic[on]
            ));
            return Err(INVALID);
        }
        let cluster = request.cluster.or(entry.required_cluster).unwrap_or([1; 3]);
        if let Some(required) = entry.required_cluster.filter(|r| *r != cluster) {
            refuse(format!("a cluster of {cluster:?}, where {required:?} are required"));
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let size: u32 = cluster.iter().product();
        let limit = if function.non_portable[on] { 16 } else { 8 };
        if size == 0 || size > limit || (0..3).any(|d| grid[d] % cluster[d].max(1) != 0) {
            refuse(format!("a cluster of {cluster:?} in a grid of {grid:?}, where {limit} CTAs are allowed"));
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let threads = threads as u32;
        let bound = entry.required_threads.or(entry.max_threads).map_or(threads, |t| t.iter().product());
        let registers = registers(entry, bound);
        if registers * threads > REGISTERS || dynamic + entry.shared_bytes + 1024 > SHARED {
            refuse(format!("{registers} registers for {threads} threads, {dynamic} bytes of shared memory"));
            return Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        let mut values = vec![0; entry.param_bytes as usize];
        if params.is_null() && !entry.params.is_empty() {
            return Err(INVALID);
        }
        for (i, &(offset, bytes)) in entry.params.iter().enumerate() {
            // SAFETY: the caller's promise: each pointer leads to a value of the parameter's size.
            let value = unsafe { std::slice::from_raw_parts((*params.add(i)).cast::<u8>(), bytes as usize) };
            values[offset as usize..][..bytes as usize].copy_from_slice(value);
        }
        Ok(Launch {
            kernel: function.kernel.clone(),
            grid,
            block,
            cluster,
            explicit_cluster: request.cluster.is_some() || entry.required_cluster.is_some(),
            dynamic,
            params: values,
            globals: function.globals[on].clone(),
            number: 0,
            registers,
            multiprocessors: self.model.multiprocessors.saturating_sub(self.model.busy).max(size),
            device,
        })
    }

    /// Runs a launch; its fault stays with the context.
    pub fn execute(&mut self, launch: &Launch) {
        if self.failed[launch.device as usize].is_some() {
            return;
        }
        self.launches += 1;
        let numbered = Launch { number: self.launches, ..launch.again() };
        let start = Instant::now();
        let seed = self.interleaving.of(self.launches);
        match run(&numbered, &mut self.memory, seed) {
            Ok(counters) => {
                if counters.omitted {
                    eprintln!("cudasim: {} ran without an instruction", launch.kernel.entry.name);
                }
                let (kernel, seconds) = (&launch.kernel, start.elapsed().as_secs_f64());
                match self.totals.iter_mut().find(|total| Arc::ptr_eq(&total.kernel, kernel)) {
                    Some(total) => {
                        total.launches += 1;
                        total.counters.add(&counters);
                        total.seconds += seconds;
                    }
                    None => self.totals.push(Total { kernel: kernel.clone(), launches: 1, counters, seconds }),
                }
            }
            Err(fault) => self.fail(launch.device, &fault),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    work("cuLaunchKernelEx", |driver| {
        if config.is_null() || !extra.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's configuration.
        let config = unsafe { &*config };
        let mut request = Request {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            cluster: None,
            dynamic: config.sharedMemBytes,
        };
        for i in 0..config.numAttrs as usize {
            // SAFETY: `attrs` holds `numAttrs` attributes.
            let attribute = unsafe { &*config.attrs.add(i) };
            match attribute.id {
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    // SAFETY: the value that belongs to this kind.
                    let dim = unsafe { attribute.value.clusterDim };
                    request.cluster = Some([dim.x, dim.y, dim.z]);
                }
                // Everything ahead on the stream has ended, so a dependent launch has nothing to overlap with.
                Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
                | Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
                | Id::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
                other => {
                    eprintln!("cudasim: launch attribute {other:?} is not modelled");
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
            }
        }
        // SAFETY: the caller's parameters.
        let launch = unsafe { driver.prepare(function as usize, &request, config.hStream as usize, params)? };
        driver.enqueue(config.hStream as usize, Node::Launch(Arc::new(launch)))
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    work("cuLaunchKernel", |driver| {
        if !extra.is_null() {
            return Err(INVALID);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let request = Request { grid, block, cluster: None, dynamic };
        // SAFETY: the caller's parameters.
        let launch = unsafe { driver.prepare(function as usize, &request, stream as usize, params)? };
        driver.enqueue(stream as usize, Node::Launch(Arc::new(launch)))
    })
}
