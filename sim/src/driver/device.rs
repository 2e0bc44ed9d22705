//! The devices that are modelled, and their attributes.

use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::{CUdevice_attribute as A, CUresult};

use super::{Driver, call, initialise};

/// A GPU model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub name: &'static str,
    /// Compute capability.
    pub capability: (i32, i32),
    /// PTX that is specific to this architecture.
    pub arch: &'static str,
    pub multiprocessors: u32,
    /// Multiprocessors that other work occupies.
    pub busy: u32,
    pub memory: u64,
}

/// Shared memory of a CTA without the opt-in, with it, and of a multiprocessor.
pub const SHARED_DEFAULT: u32 = 48 << 10;
pub const SHARED_OPTIN: u32 = 227 << 10;
const SHARED_MULTIPROCESSOR: u32 = 228 << 10;
pub const REGISTERS: u32 = 65536;

impl Model {
    /// The model of `CUDASIM_DEVICE`, with the multiprocessors of `CUDASIM_SMS`.
    pub fn from_environment() -> Option<Self> {
        let name = std::env::var("CUDASIM_DEVICE").unwrap_or_else(|_| "h200".into());
        let mut model = match name.as_str() {
            "h200" => {
                let (multiprocessors, memory) = (132, 141 << 30);
                Model { name: "NVIDIA H200", capability: (9, 0), arch: "90a", multiprocessors, busy: 0, memory }
            }
            "b200" => Model {
                name: "NVIDIA B200",
                capability: (10, 0),
                arch: "100a",
                multiprocessors: 148,
                busy: 0,
                memory: 180 << 30,
            },
            "b300" => Model {
                name: "NVIDIA B300",
                capability: (10, 3),
                arch: "103a",
                multiprocessors: 148,
                busy: 0,
                memory: 279 << 30,
            },
            _ => return None,
        };
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
        if let Some(count) = number("CUDASIM_SMS").filter(|&n| n > 0) {
            model.multiprocessors = count;
        }
        model.busy = number("CUDASIM_BUSY").unwrap_or(0);
        Some(model)
    }

    fn attribute(&self, attribute: i32) -> Option<i32> {
        let is = |a: A| a as i32 == attribute;
        let table = [
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_DEFAULT as i32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_OPTIN as i32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SHARED_MULTIPROCESSOR as i32),
            (A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
            (A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536),
            (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, REGISTERS as i32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS as i32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, self.multiprocessors as i32),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.capability.0),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.capability.1),
            (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            (A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
            (A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1),
            (A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1),
            (A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_980_000),
            (A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20),
            (A::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1),
            (A::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1),
            (A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0),
            (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1),
            (A::CU_DEVICE_ATTRIBUTE_INTEGRATED, 0),
        ];
        table.into_iter().find(|&(a, _)| is(a)).map(|(_, value)| value)
    }
}

impl Driver {
    fn device(&self, device: c_int) -> Result<(), CUresult> {
        match (0..self.devices).contains(&device) {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
        }
    }

    pub fn check_device(&self, device: c_int) -> Result<usize, CUresult> {
        self.device(device).map(|()| device as usize)
    }
}

/// Stores a result through a pointer of the caller.
///
/// # Safety
/// `to` is null or valid.
pub unsafe fn store<T>(to: *mut T, value: T) -> Result<(), CUresult> {
    if to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: valid by the contract of the call.
    unsafe { to.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 { CUresult::CUDA_ERROR_INVALID_VALUE } else { initialise() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller's pointer.
    match unsafe { store(version, 13000) } {
        Ok(()) => CUresult::CUDA_SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: the caller's pointer.
    call("cuDeviceGetCount", |driver| unsafe { store(count, driver.devices) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> CUresult {
    call("cuDeviceGet", |driver| {
        driver.device(ordinal)?;
        // SAFETY: the caller's pointer.
        unsafe { store(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> CUresult {
    call("cuDeviceGetName", |driver| {
        driver.device(device)?;
        if name.is_null() || length <= 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let text = driver.model.name.as_bytes();
        let count = text.len().min(length as usize - 1);
        // SAFETY: the caller's buffer holds `length` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, count);
            name.add(count).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> CUresult {
    call("cuDeviceTotalMem", |driver| {
        driver.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { store(bytes, driver.model.memory as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> CUresult {
    call("cuDeviceGetAttribute", |driver| {
        driver.device(device)?;
        match driver.model.attribute(attribute) {
            // SAFETY: the caller's pointer.
            Some(found) => unsafe { store(value, found) },
            None => {
                eprintln!("cudasim: device attribute {attribute} is not modelled");
                Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
            }
        }
    })
}
