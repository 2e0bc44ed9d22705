//! Error texts, entry points by name, and calls that are not modelled.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

use cudarc::driver::sys::CUresult;

/// Names of errors, made once each, so that they can be handed out as static text.
static NAMES: Mutex<Vec<(u32, &'static CStr)>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    let code = error as u32;
    let Ok(mut names) = NAMES.lock() else { return CUresult::CUDA_ERROR_UNKNOWN };
    let found = names.iter().find(|(own, _)| *own == code).map(|(_, name)| *name);
    let name = found.unwrap_or_else(|| {
        let name: &'static CStr = Box::leak(CString::new(format!("{error:?}")).unwrap_or_default().into_boxed_c_str());
        names.push((code, name));
        name
    });
    // SAFETY: the caller's pointer.
    match unsafe { super::device::store(text, name.as_ptr()) } {
        Ok(()) => CUresult::CUDA_SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's pointer.
    unsafe { cuGetErrorName(error, text) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> CUresult {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    }
    if symbol.is_null() || function.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: text that ends with a null byte; the default handle is null.
    unsafe {
        let name = CStr::from_ptr(symbol);
        let versioned = CString::new([name.to_bytes(), b"_v2"].concat()).unwrap_or_default();
        let mut found = dlsym(std::ptr::null_mut(), versioned.as_ptr());
        if found.is_null() {
            found = dlsym(std::ptr::null_mut(), symbol);
        }
        *function = found;
        if !status.is_null() {
            *status = if found.is_null() { 1 } else { 0 };
        }
        if found.is_null() {
            eprintln!("cudasim: {} is not modelled", name.to_string_lossy());
            return CUresult::CUDA_ERROR_NOT_FOUND;
        }
    }
    CUresult::CUDA_SUCCESS
}

/// Exports calls that only say that they are not modelled.
macro_rules! missing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> CUresult {
                eprintln!("cudasim: {} is not modelled", stringify!($name));
                CUresult::CUDA_ERROR_NOT_SUPPORTED
            }
        )*
    };
}

missing! {
    cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetFlags cuCtxGetLimit cuCtxSetLimit
    cuCtxGetStreamPriorityRange cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetPCIBusId
    cuDeviceGetUuid_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuFuncGetModule cuFuncGetName
    cuFuncLoad cuGraphAddKernelNode_v2 cuGraphCreate cuGraphExecUpdate_v2 cuGraphGetNodes cuGraphUpload
    cuLaunchCooperativeKernel cuLaunchHostFunc cuLibraryGetGlobal cuLibraryGetModule cuLibraryLoadFromFile
    cuMemAllocHost_v2 cuMemAllocManaged cuMemAllocPitch_v2 cuMemFreeHost cuMemHostAlloc cuMemHostGetDevicePointer_v2
    cuMemHostRegister_v2 cuMemHostUnregister cuMemPoolCreate cuMemPrefetchAsync cuMemcpy cuMemcpy2DAsync_v2 cuMemcpyAsync
    cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadDataEx cuModuleLoadFatBinary
    cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialClusterSize cuProfilerStart cuProfilerStop
    cuStreamAddCallback cuStreamGetCaptureInfo_v2 cuStreamGetCtx cuStreamGetFlags cuStreamGetPriority
    cuStreamWaitValue32_v2 cuStreamWriteValue32_v2 cuTensorMapEncodeIm2col cuTensorMapReplaceAddress
}
