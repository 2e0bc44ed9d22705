//! Host memory for the CPU device.

use super::Memory;

/// Memory of this process, mapped without being committed.
pub struct Host;

impl Memory for Host {
    fn allocate(&self, bytes: usize) -> Result<usize, String> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match address {
            libc::MAP_FAILED => Err(format!("cannot map {bytes} bytes: {}", std::io::Error::last_os_error())),
            address => Ok(address as usize),
        }
    }

    unsafe fn free(&self, address: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
    }

    unsafe fn write(&self, address: usize, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        Ok(())
    }

    unsafe fn read(&self, address: usize, bytes: &mut [u8]) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn synchronize(&self) -> Result<(), String> {
        Ok(())
    }

    fn name(&self) -> String {
        "CPU".into()
    }
}
