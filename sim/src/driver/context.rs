//! Primary contexts and the stack of current ones.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUresult;

use super::device::store;
use super::{call, work};

/// The handle of a device's primary context.
const FIRST: usize = 0xC0_0000;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The device of the current context.
pub fn current() -> Option<i32> {
    STACK.with_borrow(|stack| stack.last().copied()).filter(|&c| c >= FIRST).map(|c| ((c - FIRST) / 16) as i32)
}

fn handle(device: usize) -> usize {
    FIRST + 16 * device
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> CUresult {
    call("cuDevicePrimaryCtxRetain", |driver| {
        let device = driver.check_device(device)?;
        driver.retained[device] += 1;
        // SAFETY: the caller's pointer.
        unsafe { store(context, handle(device) as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> CUresult {
    call("cuDevicePrimaryCtxRelease", |driver| {
        let device = driver.check_device(device)?;
        match driver.retained[device].checked_sub(1) {
            Some(count) => {
                driver.retained[device] = count;
                Ok(())
            }
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) -> CUresult {
    call("cuDevicePrimaryCtxGetState", |driver| {
        let device = driver.check_device(device)?;
        // SAFETY: the caller's pointers.
        unsafe {
            store(flags, 0)?;
            store(active, (driver.retained[device] > 0).into())
        }
    })
}

fn valid(driver: &super::Driver, context: usize) -> Result<(), CUresult> {
    let device = context.wrapping_sub(FIRST) / 16;
    match driver.retained.get(device) {
        Some(&count) if count > 0 && handle(device) == context => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> CUresult {
    call("cuCtxPushCurrent", |driver| {
        valid(driver, context as usize)?;
        STACK.with_borrow_mut(|stack| stack.push(context as usize));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> CUresult {
    call("cuCtxPopCurrent", |_| match STACK.with_borrow_mut(Vec::pop) {
        Some(popped) if context.is_null() => {
            let _ = popped;
            Ok(())
        }
        // SAFETY: the caller's pointer.
        Some(popped) => unsafe { store(context, popped as *mut c_void) },
        None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> CUresult {
    call("cuCtxSetCurrent", |driver| {
        if !context.is_null() {
            valid(driver, context as usize)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if !context.is_null() {
                stack.push(context as usize);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> CUresult {
    call("cuCtxGetCurrent", |_| {
        let found = STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0));
        // SAFETY: the caller's pointer.
        unsafe { store(context, found as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> CUresult {
    call("cuCtxGetDevice", |_| {
        let found = current().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        // SAFETY: the caller's pointer.
        unsafe { store(device, found) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> CUresult {
    work("cuCtxSynchronize", |driver| match driver.streams.values().any(|s| s.capture.is_some()) {
        true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    })
}
