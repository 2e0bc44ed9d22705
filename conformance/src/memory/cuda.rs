//! Device memory through the CUDA driver.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUdriverProcAddressQueryResult};

use super::Memory;
use crate::rng::hash;

/// Memory of one CUDA device, in its primary context.
pub struct Cuda {
    device: sys::CUdevice,
    /// The call of cudasim that chooses an interleaving, by a repetition and a number; other drivers have none.
    interleave: Option<extern "C" fn(u64, u64) -> sys::CUresult>,
}

fn check(call: &str, result: sys::CUresult) -> Result<(), String> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = std::ptr::null();
    // SAFETY: writes a pointer to static text, or null.
    unsafe { sys::cuGetErrorName(result, &mut name) };
    let name = match name.is_null() {
        true => "unknown error".into(),
        // SAFETY: static text of the driver.
        false => unsafe { CStr::from_ptr(name) }.to_string_lossy(),
    };
    Err(format!("{call}: {name}"))
}

impl Cuda {
    /// Makes the primary context of device `ordinal` current on this thread.
    pub fn new(ordinal: i32) -> Result<Self, String> {
        // SAFETY: only looks for the driver's library.
        if !unsafe { sys::is_culib_present() } {
            return Err("no CUDA driver is installed".into());
        }
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: valid out pointers; the context stays retained until the drop.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
        }
        Ok(Cuda { device, interleave: interleave() })
    }
}

/// Asks the driver for what only cudasim has.
fn interleave() -> Option<extern "C" fn(u64, u64) -> sys::CUresult> {
    const ADDED_IN: i32 = 12000;
    let (mut address, mut status) = (std::ptr::null_mut(), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
    // SAFETY: a name that ends with a null byte, and valid out pointers.
    let result =
        unsafe { sys::cuGetProcAddress_v2(c"cudasimInterleave".as_ptr(), &mut address, ADDED_IN, 0, &mut status) };
    if result != sys::CUresult::CUDA_SUCCESS || address.is_null() {
        return None;
    }
    // SAFETY: that is the function's type.
    Some(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u64, u64) -> sys::CUresult>(address) })
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: retained by `new`.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Memory for Cuda {
    fn allocate(&self, bytes: usize) -> Result<usize, String> {
        let mut address = 0;
        // SAFETY: a valid out pointer.
        check(&format!("cuMemAlloc of {bytes} bytes"), unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
        Ok(address as usize)
    }

    unsafe fn free(&self, address: usize, _bytes: usize) {
        // SAFETY: the caller's promise. A failure here was already reported by a synchronisation.
        unsafe { sys::cuMemFree_v2(address as u64) };
    }

    unsafe fn write(&self, address: usize, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let result = unsafe { sys::cuMemcpyHtoD_v2(address as u64, bytes.as_ptr().cast(), bytes.len()) };
        check("cuMemcpyHtoD", result)
    }

    unsafe fn read(&self, address: usize, bytes: &mut [u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.synchronize()?;
        // SAFETY: the caller's promise.
        let result = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address as u64, bytes.len()) };
        check("cuMemcpyDtoH", result)
    }

    fn synchronize(&self) -> Result<(), String> {
        // SAFETY: the primary context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    fn begin(&self, repetition: u64, name: &str) -> Result<(), String> {
        match self.interleave {
            Some(interleave) => check("cudasimInterleave", interleave(repetition, hash(name))),
            None => Ok(()),
        }
    }

    fn name(&self) -> String {
        let mut name = [0; 128];
        // SAFETY: writes at most the stated number of bytes, the last of them a 0.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, self.device) };
        match check("cuDeviceGetName", result) {
            // SAFETY: the driver ended the text with a 0.
            Ok(()) => unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
            Err(text) => text,
        }
    }
}
