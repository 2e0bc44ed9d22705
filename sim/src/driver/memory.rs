//! Device memory: allocation, copies, sets, pointer attributes.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUpointer_attribute as P, CUresult};

use super::device::store;
use super::stream::Node;
use super::{Driver, Outcome, call, work};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Driver {
    /// No bytes may go anywhere.
    pub fn copy_in(&mut self, to: u64, data: &[u8]) -> Outcome {
        if data.is_empty() {
            return Ok(());
        }
        self.memory.write(to, data).map_err(|fault| Driver::refuse("copy to the device", &fault))
    }

    fn copy_out(&mut self, from: u64, out: &mut [u8]) -> Outcome {
        if out.is_empty() {
            return Ok(());
        }
        self.memory.read(from, out).map_err(|fault| Driver::refuse("copy from the device", &fault))
    }

    /// Copies bytes with their state: what nothing wrote stays unwritten.
    pub fn copy_across(&mut self, to: u64, from: u64, bytes: usize) -> Outcome {
        if bytes == 0 {
            return Ok(());
        }
        let refuse = |fault| Driver::refuse("copy within the device", &fault);
        let (source, start) = self.memory.range(from, bytes).map_err(refuse)?;
        let (data, valid) = (source.bytes[start..start + bytes].to_vec(), source.valid[start..start + bytes].to_vec());
        let (target, start) = self.memory.range(to, bytes).map_err(refuse)?;
        target.bytes[start..start + bytes].copy_from_slice(&data);
        target.valid[start..start + bytes].copy_from_slice(&valid);
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> CUresult {
    work("cuMemAlloc", |driver| {
        if bytes == 0 {
            return Err(INVALID);
        }
        if driver.memory.used(driver.device) + bytes as u64 > driver.model.memory.min(16 << 30) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: the caller's pointer.
        unsafe { store(pointer, driver.memory.allocate(bytes, driver.device)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: u64) -> CUresult {
    work("cuMemFree", |driver| match pointer == 0 || driver.memory.free(pointer) {
        true => Ok(()),
        false => Err(INVALID),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(pointer: *mut u64, bytes: usize, _stream: *mut c_void) -> CUresult {
    // SAFETY: the caller's pointer.
    unsafe { cuMemAlloc_v2(pointer, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(pointer: u64, _stream: *mut c_void) -> CUresult {
    cuMemFree_v2(pointer)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    work("cuMemGetInfo", |driver| {
        let all = driver.model.memory;
        // SAFETY: the caller's pointers.
        unsafe {
            store(free, all.saturating_sub(driver.memory.used(driver.device)) as usize)?;
            store(total, all as usize)
        }
    })
}

/// Memory of the caller; null for no bytes at all.
fn host<T>(pointer: *mut T, bytes: usize) -> Result<*mut [u8], CUresult> {
    match (pointer.is_null(), bytes) {
        (_, 0) => Ok(std::ptr::slice_from_raw_parts_mut(std::ptr::NonNull::dangling().as_ptr(), 0)),
        (true, _) => Err(INVALID),
        _ => Ok(std::ptr::slice_from_raw_parts_mut(pointer.cast(), bytes)),
    }
}

/// # Safety
/// `from` holds `bytes` bytes.
unsafe fn to_device(name: &str, to: u64, from: *const c_void, bytes: usize, stream: Option<*mut c_void>) -> CUresult {
    work(name, |driver| {
        // SAFETY: the caller's buffer.
        let data = unsafe { &*host(from.cast_mut(), bytes)? };
        match stream {
            // A captured copy would read the buffer when the graph runs; here it is read now, which is the same unless
            // the caller changes it between.
            Some(stream) => driver.enqueue(stream as usize, Node::CopyIn { to, data: data.to_vec() }),
            None => driver.copy_in(to, data),
        }
    })
}

/// # Safety
/// `to` holds `bytes` bytes.
unsafe fn from_device(name: &str, to: *mut c_void, from: u64, bytes: usize, stream: Option<*mut c_void>) -> CUresult {
    work(name, |driver| {
        if let Some(stream) = stream
            && driver.capturing(stream as usize)?
        {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: the caller's buffer, which nothing else uses during the call.
        driver.copy_out(from, unsafe { &mut *host(to, bytes)? })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { to_device("cuMemcpyHtoD", to, from, bytes, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { to_device("cuMemcpyHtoDAsync", to, from, bytes, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { from_device("cuMemcpyDtoH", to, from, bytes, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { from_device("cuMemcpyDtoHAsync", to, from, bytes, Some(stream)) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> CUresult {
    work("cuMemcpyDtoD", |driver| driver.copy_across(to, from, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> CUresult {
    work("cuMemcpyDtoDAsync", |driver| driver.enqueue(stream as usize, Node::CopyAcross { to, from, bytes }))
}

fn set(name: &str, to: u64, pattern: &[u8], count: usize, stream: *mut c_void) -> CUresult {
    work(name, |driver| {
        if !to.is_multiple_of(pattern.len() as u64) {
            return Err(INVALID);
        }
        let data = pattern.repeat(count);
        driver.enqueue(stream as usize, Node::CopyIn { to, data })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> CUresult {
    set("cuMemsetD8", to, &[value], count, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16_v2(to: u64, value: u16, count: usize) -> CUresult {
    set("cuMemsetD16", to, &value.to_le_bytes(), count, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(to: u64, value: c_uint, count: usize) -> CUresult {
    set("cuMemsetD32", to, &value.to_le_bytes(), count, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) -> CUresult {
    set("cuMemsetD8Async", to, &[value], count, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut c_void) -> CUresult {
    set("cuMemsetD16Async", to, &value.to_le_bytes(), count, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: *mut c_void) -> CUresult {
    set("cuMemsetD32Async", to, &value.to_le_bytes(), count, stream)
}

/// One attribute of a pointer, stored through `value`.
///
/// # Safety
/// `value` has the size that the driver documents for the attribute.
unsafe fn attribute(driver: &Driver, attribute: c_int, pointer: u64, value: *mut c_void) -> Outcome {
    let found = driver.memory.find(pointer);
    let is = |a: P| attribute == a as c_int;
    // SAFETY: the caller's promise; unknown pointers leave zero, as the driver does.
    unsafe {
        if is(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            store(value.cast::<c_uint>(), if found.is_some() { 2 } else { 0 })
        } else if is(P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            store(value.cast::<c_int>(), found.map_or(-2, |a| a.device))
        } else if is(P::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
            store(value.cast::<c_uint>(), 0)
        } else if is(P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
            store(value.cast::<u64>(), found.map_or(0, |a| a.base))
        } else if is(P::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
            store(value.cast::<usize>(), found.map_or(0, |a| a.bytes.len()))
        } else if is(P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
            store(value.cast::<u64>(), found.map_or(0, |_| pointer))
        } else {
            eprintln!("cudasim: pointer attribute {attribute} is not modelled");
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    values: *const *mut c_void,
    pointer: u64,
) -> CUresult {
    call("cuPointerGetAttributes", |driver| {
        if attributes.is_null() || values.is_null() {
            return Err(INVALID);
        }
        for i in 0..count as usize {
            // SAFETY: the caller's arrays hold `count` entries of the right kinds.
            unsafe { attribute(driver, *attributes.add(i), pointer, *values.add(i))? };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, which: c_int, pointer: u64) -> CUresult {
    call("cuPointerGetAttribute", |driver| match driver.memory.find(pointer) {
        // SAFETY: the caller's promise.
        Some(_) => unsafe { attribute(driver, which, pointer, value) },
        None => Err(INVALID),
    })
}
