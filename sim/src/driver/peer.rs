//! Several devices: none reaches the memory of another, as without NVLink and with peer access switched off. Copies do.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUresult;

use super::device::store;
use super::stream::Node;
use super::{call, work};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> CUresult {
    call("cuDeviceCanAccessPeer", |driver| {
        driver.check_device(device)?;
        driver.check_device(peer)?;
        // SAFETY: the caller's pointer.
        unsafe { store(can, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(_peer: *mut c_void, _flags: c_uint) -> CUresult {
    work("cuCtxEnablePeerAccess", |_| Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(_peer: *mut c_void) -> CUresult {
    work("cuCtxDisablePeerAccess", |_| Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeer(to: u64, _: *mut c_void, from: u64, _: *mut c_void, bytes: usize) -> CUresult {
    work("cuMemcpyPeer", |driver| driver.copy_across(to, from, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _: *mut c_void,
    from: u64,
    _: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> CUresult {
    work("cuMemcpyPeerAsync", |driver| driver.enqueue(stream as usize, Node::CopyAcross { to, from, bytes }))
}
