//! The driver API: what an application calls. Work runs when it is enqueued, in the order of the calls; its failure
//! shows at the next synchronisation, as with a real device.

mod context;
mod device;
mod interleaving;
mod launch;
mod library;
mod memory;
mod missing;
mod peer;
mod report;
mod stream;
mod tensor_map;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUresult;

use crate::error::{Fault, Kind};
use crate::machine::{Counters, Global};
use crate::program::Kernel;
use device::Model;
use interleaving::Interleaving;
use stream::{Event, Graph, Stream};

/// Everything that handles name.
struct Driver {
    model: Model,
    devices: i32,
    /// Device of the context that is current in the calling thread.
    device: i32,
    memory: Global,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    graphs: HashMap<usize, Graph>,
    libraries: HashMap<usize, library::Library>,
    kernels: HashMap<usize, Function>,
    /// References to the primary context of each device.
    retained: Vec<u32>,
    next_handle: usize,
    launches: u32,
    interleaving: Interleaving,
    /// By device, the error that every call returns once a kernel has failed.
    failed: Vec<Option<CUresult>>,
    /// 0: no report, 1: counters, 2: also what was never executed.
    report: u64,
    totals: Vec<Total>,
}

/// What all launches of a kernel did.
struct Total {
    kernel: Arc<Kernel>,
    launches: u64,
    counters: Counters,
    seconds: f64,
}

/// A kernel of a library, with what was set on it.
struct Function {
    kernel: Arc<Kernel>,
    /// By device, the addresses of the module's variables, and what was set.
    globals: Vec<Vec<u64>>,
    max_dynamic: Vec<u32>,
    non_portable: Vec<bool>,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

type Outcome = Result<(), CUresult>;

/// Runs a call on the driver once it is initialised.
fn call(name: &str, f: impl FnOnce(&mut Driver) -> Outcome) -> CUresult {
    let run = || {
        let mut guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(driver) = guard.as_mut() else { return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) };
        f(driver)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => {
            eprintln!("cudasim: internal error in {name}");
            CUresult::CUDA_ERROR_UNKNOWN
        }
    }
}

/// As `call`, for calls that a failed context refuses.
fn work(name: &str, f: impl FnOnce(&mut Driver) -> Outcome) -> CUresult {
    call(name, |driver| {
        driver.device = context::current().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        driver.healthy()?;
        f(driver)
    })
}

fn initialise() -> CUresult {
    let mut guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        let number =
            |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
        let Some(model) = Model::from_environment() else {
            eprintln!("cudasim: CUDASIM_DEVICE must be h200, b200 or b300");
            return CUresult::CUDA_ERROR_NO_DEVICE;
        };
        let devices = number("CUDASIM_DEVICES", 1).clamp(1, 64) as i32;
        *guard = Some(Driver {
            model,
            devices,
            device: 0,
            memory: Global::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            libraries: HashMap::new(),
            kernels: HashMap::new(),
            retained: vec![0; devices as usize],
            next_handle: 0x1000,
            launches: 0,
            interleaving: Interleaving::new(number("CUDASIM_SEED", 1)),
            failed: vec![None; devices as usize],
            report: number("CUDASIM_REPORT", 0),
            totals: Vec::new(),
        });
        report::at_exit();
    }
    CUresult::CUDA_SUCCESS
}

impl Driver {
    fn handle(&mut self) -> usize {
        self.next_handle += 16;
        self.next_handle
    }

    fn healthy(&self) -> Outcome {
        self.failed[self.device as usize].map_or(Ok(()), Err)
    }

    /// A fault that a call itself reports.
    fn refuse(name: &str, fault: &Fault) -> CUresult {
        eprintln!("cudasim: {name}: {fault}");
        match fault.kind {
            Kind::Malformed | Kind::Unsupported => CUresult::CUDA_ERROR_INVALID_IMAGE,
            _ => CUresult::CUDA_ERROR_INVALID_VALUE,
        }
    }

    /// A fault of a kernel: it stays with the context of the device.
    fn fail(&mut self, device: i32, fault: &Fault) {
        let (seed, launch) = self.interleaving.name(self.launches);
        eprintln!("cudasim: seed {seed}, launch {launch}: {fault}");
        self.failed[device as usize].get_or_insert(match fault.kind {
            Kind::OutOfBounds => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            Kind::Misaligned => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
            Kind::Deadlock => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
            _ => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        });
    }
}
