//! A thin layer over the CUDA driver: statuses become errors, resources are freed, contexts are restored.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;

use cudarc::driver::sys;

use super::image;
use crate::error::{Error, Result, Status};

/// Turns the result of a driver call into an error with the name of the call and of the failure.
pub(super) fn check(result: sys::CUresult, call: &str) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver stores a static string, or leaves null for an unknown result.
    let name = unsafe {
        match sys::cuGetErrorName(result, &mut text) {
            sys::CUresult::CUDA_SUCCESS if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
            _ => format!("{result:?}"),
        }
    };
    let status = match result {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Status::OutOfMemory,
        sys::CUresult::CUDA_ERROR_NO_DEVICE | sys::CUresult::CUDA_ERROR_INVALID_DEVICE => Status::NoDevice,
        _ => Status::Cuda,
    };
    Err(Error::new(status, format!("{call} failed: {name}")))
}

/// A GPU whose primary context jfa has retained, for the life of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

// SAFETY: a context handle may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

static GPUS: Mutex<Option<HashMap<u32, Gpu>>> = Mutex::new(None);

impl Gpu {
    /// The device with this ordinal.
    ///
    /// # Errors
    /// `NoDriver` if the driver cannot be loaded, `NoDevice` if there is no such device.
    pub(super) fn open(ordinal: u32) -> Result<Self> {
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(Status::NoDriver, "the CUDA driver (libcuda.so.1) is not installed"));
        }
        let mut gpus = GPUS.lock().map_err(|_| Error::new(Status::Internal, "a thread panicked in Gpu::open"))?;
        if let Some(gpu) = gpus.get_or_insert_default().get(&ordinal) {
            return Ok(*gpu);
        }
        // SAFETY: plain calls with valid pointers to locals.
        let gpu = unsafe {
            match sys::cuInit(0) {
                sys::CUresult::CUDA_ERROR_NO_DEVICE => {
                    return Err(Error::new(Status::NoDevice, "the CUDA driver finds no device"));
                }
                result => check(result, "cuInit")?,
            }
            let (mut count, mut device, mut context) = (0, 0, null_mut());
            check(sys::cuDeviceGetCount(&mut count), "cuDeviceGetCount")?;
            if i64::from(ordinal) >= i64::from(count) {
                let message = format!("device_index is {ordinal}, but the driver has {count} devices");
                return Err(Error::new(Status::NoDevice, message));
            }
            check(sys::cuDeviceGet(&mut device, ordinal as i32), "cuDeviceGet")?;
            let attribute = |attribute| {
                let mut value = 0;
                check(sys::cuDeviceGetAttribute(&mut value, attribute, device), "cuDeviceGetAttribute").map(|()| value)
            };
            use sys::CUdevice_attribute as A;
            let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
            Gpu { device, context, capability: (major, minor), multiprocessors }
        };
        gpus.get_or_insert_default().insert(ordinal, gpu);
        Ok(gpu)
    }

    /// Makes the primary context current until the guard is dropped.
    pub(super) fn enter(&self) -> Result<ContextGuard> {
        // SAFETY: the context is retained for the life of the process.
        check(unsafe { sys::cuCtxPushCurrent_v2(self.context) }, "cuCtxPushCurrent")?;
        Ok(ContextGuard)
    }

    /// Refuses a pointer that the driver knows to lie elsewhere than on this device.
    pub(super) fn check_pointer(&self, name: &str, pointer: *const c_void) -> Result<()> {
        if pointer.is_null() {
            return Ok(());
        }
        use sys::CUpointer_attribute as A;
        let (mut kind, mut ordinal, mut managed) = (0u32, -1i32, 0u32);
        // One question answers for the usual pointer, and costs a third of all.
        // SAFETY: the attribute has the size of an int.
        let result = unsafe {
            let which = A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            sys::cuPointerGetAttribute((&raw mut ordinal).cast(), which, pointer as sys::CUdeviceptr)
        };
        if result == sys::CUresult::CUDA_SUCCESS && ordinal == self.device {
            return Ok(());
        }
        let mut attributes = [
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        ];
        let mut values: [*mut c_void; 3] =
            [(&raw mut kind).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
        // SAFETY: three attributes of the sizes that the driver documents.
        let result = unsafe {
            sys::cuPointerGetAttributes(3, attributes.as_mut_ptr(), values.as_mut_ptr(), pointer as sys::CUdeviceptr)
        };
        check(result, "cuPointerGetAttributes")?;
        let refuse = |what: String| {
            Err(Error::new(
                Status::InvalidArgument,
                format!("{name} is {pointer:p}, {what}, but must be device memory"),
            ))
        };
        match kind {
            _ if managed != 0 => Ok(()),
            2 if ordinal != self.device => refuse(format!("memory of CUDA device {ordinal}")),
            2 => Ok(()),
            1 => Ok(()), // pinned host memory that the device can read
            _ => refuse("host memory".into()),
        }
    }
}

/// Restores the caller's context when dropped.
#[derive(Debug)]
pub(super) struct ContextGuard;

impl Drop for ContextGuard {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: pops what `enter` pushed.
        unsafe { sys::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// Memory of a device.
#[derive(Debug)]
pub(super) struct Buffer {
    gpu: Gpu,
    /// Address.
    pub address: sys::CUdeviceptr,
}

impl Buffer {
    /// Allocates `bytes` bytes; the context must be current.
    pub(super) fn new(gpu: Gpu, bytes: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: plain call with a valid pointer.
        check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(256)) }, &format!("cuMemAlloc of {bytes} bytes"))?;
        Ok(Buffer { gpu, address })
    }

    /// Copies the first `count` values to the host, after all work of the context.
    pub(super) fn read<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>> {
        let mut values = vec![T::default(); count];
        let bytes = count * size_of::<T>();
        // SAFETY: the vector holds `bytes` bytes, and callers stay within the buffer.
        unsafe {
            check(sys::cuCtxSynchronize(), "cuCtxSynchronize")?;
            if bytes > 0 {
                check(sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes), "cuMemcpyDtoH")?;
            }
        }
        Ok(values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(_guard) = self.gpu.enter() {
            // SAFETY: allocated in `new`. `cuMemFree` waits for work that uses the memory. A driver that is shutting
            // down has freed it already.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// A kernel of an embedded image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    function: sys::CUfunction,
    /// Threads of a CTA.
    pub threads: u32,
    /// Dynamic shared memory of a CTA.
    pub shared_bytes: u32,
}

// SAFETY: kernel handles are context-independent and may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

struct Library(sys::CUlibrary);

// SAFETY: library handles may be used from any thread.
unsafe impl Send for Library {}

/// Loaded once, never unloaded: enqueued work and other plans may use them until the process ends.
static LIBRARIES: Mutex<Option<HashMap<String, Library>>> = Mutex::new(None);

impl Kernel {
    /// Loads `name` from the image `unit` and makes it ready on a device, so that no launch loads anything.
    pub(super) fn load(gpu: &Gpu, unit: &str, name: &str, threads: u32, shared_bytes: u32) -> Result<Self> {
        let mut libraries =
            LIBRARIES.lock().map_err(|_| Error::new(Status::Internal, "a thread panicked in Kernel::load"))?;
        let libraries = libraries.get_or_insert_default();
        // SAFETY: the image lives as long as the process; all pointers are to locals.
        unsafe {
            if !libraries.contains_key(unit) {
                let mut library = null_mut();
                let image = image::find(unit)?.as_ptr();
                let (options, values) = (null_mut(), null_mut());
                let result =
                    sys::cuLibraryLoadData(&mut library, image.cast(), options, values, 0, null_mut(), null_mut(), 0);
                check(result, &format!("cuLibraryLoadData of {unit}"))?;
                libraries.insert(unit.to_string(), Library(library));
            }
            let library = &libraries[unit];
            let symbol = CString::new(name).map_err(|e| Error::new(Status::Internal, e.to_string()))?;
            let (mut kernel, mut function) = (null_mut(), null_mut());
            check(
                sys::cuLibraryGetKernel(&mut kernel, library.0, symbol.as_ptr()),
                &format!("cuLibraryGetKernel {name}"),
            )?;
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let result = sys::cuKernelSetAttribute(attribute, shared_bytes as i32, kernel, gpu.device);
            check(result, &format!("cuKernelSetAttribute of {shared_bytes} bytes of shared memory for {name}"))?;
            // Forces the load now, in the current context.
            check(sys::cuKernelGetFunction(&mut function, kernel), &format!("cuKernelGetFunction {name}"))?;
            let _ = function;
            Ok(Kernel { function: kernel.cast(), threads, shared_bytes })
        }
    }

    /// Enqueues the kernel.
    ///
    /// # Safety
    /// `params` match the kernel's parameters; the stream belongs to the current context.
    pub(super) unsafe fn launch<const N: usize>(
        &self,
        launch: Launch,
        stream: *mut c_void,
        params: [*const c_void; N],
    ) -> Result<()> {
        use sys::CUlaunchAttributeID as Id;
        let mut params = params.map(<*const c_void>::cast_mut);
        // SAFETY: zero is a valid attribute, and the fields set belong to the kind of each.
        let mut attributes = unsafe { MaybeUninit::<[sys::CUlaunchAttribute; 2]>::zeroed().assume_init() };
        let mut count = 0;
        if launch.cluster > 1 {
            attributes[count].id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[count].value.clusterDim.x = launch.cluster;
            attributes[count].value.clusterDim.y = 1;
            attributes[count].value.clusterDim.z = 1;
            count += 1;
        }
        if launch.dependent {
            attributes[count].id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[count].value.programmaticStreamSerializationAllowed = 1;
            count += 1;
        }
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream.cast(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        // SAFETY: the caller's promise.
        let result = unsafe { sys::cuLaunchKernelEx(&config, self.function, params.as_mut_ptr(), null_mut()) };
        check(result, "cuLaunchKernelEx")
    }
}

/// Enqueues zeros for `count` values.
///
/// # Safety
/// `to` is device memory with room for them; the stream belongs to the current context.
pub(super) unsafe fn zero(to: *mut u32, count: usize, stream: *mut c_void) -> Result<()> {
    // SAFETY: the caller's promise.
    check(unsafe { sys::cuMemsetD32Async(to as u64, 0, count, stream.cast()) }, "cuMemsetD32Async")
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// CTAs.
    pub grid: u32,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// Whether it may start before the work ahead of it on the stream has ended; the kernel then waits itself.
    pub dependent: bool,
}
