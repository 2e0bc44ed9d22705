//! Libraries and modules: images become kernels.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction_attribute as F, CUresult};

use super::device::{REGISTERS, SHARED_DEFAULT, SHARED_OPTIN, store};
use super::{Driver, Function, Outcome, call, work};
use crate::program::{Kernel, decode};

/// The kernels of an image, by name.
pub struct Library {
    kernels: Vec<(String, usize)>,
}

const HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

impl Driver {
    /// # Safety
    /// `image` as for `image::ptx`.
    unsafe fn load(&mut self, image: *const c_void) -> Result<usize, CUresult> {
        // SAFETY: the caller's promise.
        let text = unsafe { crate::image::ptx(image.cast(), self.model.arch) };
        let text = text.map_err(|fault| Driver::refuse("loading an image", &fault))?;
        let module = crate::ptx::parse(&text).map_err(|fault| Driver::refuse("loading an image", &fault))?;
        let target: String = module.target.trim_start_matches("sm_").into();
        let number = |arch: &str| arch.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().unwrap_or(0);
        let specific = target.ends_with('a');
        if specific && target != self.model.arch || number(&target) > number(self.model.arch) {
            eprintln!("cudasim: the image is for sm_{target}, the device is sm_{}", self.model.arch);
            return Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
        let lines = Arc::new(text.lines().map(String::from).collect::<Vec<_>>());
        let devices = self.devices as usize;
        let mut globals = vec![Vec::new(); devices];
        for (device, globals) in (0..).zip(&mut globals) {
            for global in &module.globals {
                let address = self.memory.allocate(global.bytes.max(1) as usize, device);
                let mut data = global.initial.clone();
                data.resize(global.bytes.max(1) as usize, 0);
                self.copy_in(address, &data)?;
                globals.push(address);
            }
        }
        let mut library = Library { kernels: Vec::new() };
        for entry in module.entries {
            let name = entry.name.clone();
            let mut kernel = decode(entry, lines.clone(), module.files.clone())
                .map_err(|fault| Driver::refuse("loading an image", &fault))?;
            omit(&mut kernel);
            let handle = self.handle();
            let max_dynamic = SHARED_DEFAULT.saturating_sub(kernel.entry.shared_bytes);
            let (max_dynamic, non_portable) = (vec![max_dynamic; devices], vec![false; devices]);
            let function = Function { kernel: Arc::new(kernel), globals: globals.clone(), max_dynamic, non_portable };
            self.kernels.insert(handle, function);
            library.kernels.push((name, handle));
        }
        let handle = self.handle();
        self.libraries.insert(handle, library);
        Ok(handle)
    }

    fn find(&self, library: usize, name: *const c_char) -> Result<usize, CUresult> {
        if name.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a name that ends with a null byte, by the contract of the call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let library = self.libraries.get(&library).ok_or(HANDLE)?;
        let found = library.kernels.iter().find(|(own, _)| *own == name);
        found.map(|(_, handle)| *handle).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    fn set_attribute(&mut self, device: usize, kernel: usize, attribute: c_int, value: c_int) -> Outcome {
        let function = self.kernels.get_mut(&kernel).ok_or(HANDLE)?;
        let is = |a: F| a as c_int == attribute;
        if is(F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            if value < 0 || value as u32 + function.kernel.entry.shared_bytes > SHARED_OPTIN {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            function.max_dynamic[device] = value as u32;
        } else if is(F::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
            function.non_portable[device] = value != 0;
        } else if !is(F::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
            eprintln!("cudasim: function attribute {attribute} is not modelled");
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(())
    }

    fn attribute(&self, device: usize, kernel: usize, attribute: c_int) -> Result<c_int, CUresult> {
        let function = self.kernels.get(&kernel).ok_or(HANDLE)?;
        let entry = &function.kernel.entry;
        let threads =
            entry.required_threads.or(entry.max_threads).map_or(1024, |t| t.iter().product::<u32>().min(1024));
        let is = |a: F| a as c_int == attribute;
        Ok(match () {
            () if is(F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) => threads as c_int,
            () if is(F::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) => entry.shared_bytes as c_int,
            () if is(F::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) => 0,
            () if is(F::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) => entry.local_bytes as c_int,
            () if is(F::CU_FUNC_ATTRIBUTE_NUM_REGS) => registers(entry, threads) as c_int,
            () if is(F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) => function.max_dynamic[device] as c_int,
            () => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        })
    }
}

/// Registers of a thread at the launch: all that its launch bounds leave, as ptxas gives kernels that use setmaxnreg.
pub fn registers(entry: &crate::ptx::ast::Entry, threads: u32) -> u32 {
    let ctas = entry.min_ctas.unwrap_or(1).max(1);
    let share = REGISTERS / (threads.next_multiple_of(128).max(128) * ctas);
    entry.max_registers.unwrap_or(255).min(share / 8 * 8).min(255)
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuLibraryLoadData(
    library: *mut *mut c_void,
    image: *const c_void,
    _jit_options: *mut c_void,
    _jit_values: *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: c_uint,
) -> CUresult {
    call("cuLibraryLoadData", |driver| {
        // SAFETY: the caller's image and pointer.
        unsafe {
            let handle = driver.load(image)?;
            store(library, handle as *mut c_void)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryUnload(library: *mut c_void) -> CUresult {
    call("cuLibraryUnload", |driver| {
        let library = driver.libraries.remove(&(library as usize)).ok_or(HANDLE)?;
        for (_, kernel) in library.kernels {
            driver.kernels.remove(&kernel);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetKernel(
    kernel: *mut *mut c_void,
    library: *mut c_void,
    name: *const c_char,
) -> CUresult {
    call("cuLibraryGetKernel", |driver| {
        let found = driver.find(library as usize, name)?;
        // SAFETY: the caller's pointer.
        unsafe { store(kernel, found as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuKernelGetFunction(function: *mut *mut c_void, kernel: *mut c_void) -> CUresult {
    work("cuKernelGetFunction", |driver| match driver.kernels.contains_key(&(kernel as usize)) {
        // SAFETY: the caller's pointer.
        true => unsafe { store(function, kernel) },
        false => Err(HANDLE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelSetAttribute(attribute: c_int, value: c_int, kernel: *mut c_void, device: c_int) -> CUresult {
    call("cuKernelSetAttribute", |driver| {
        let device = driver.check_device(device)?;
        driver.set_attribute(device, kernel as usize, attribute, value)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    kernel: *mut c_void,
    device: c_int,
) -> CUresult {
    call("cuKernelGetAttribute", |driver| {
        let device = driver.check_device(device)?;
        let found = driver.attribute(device, kernel as usize, attribute)?;
        // SAFETY: the caller's pointer.
        unsafe { store(value, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> CUresult {
    work("cuModuleLoadData", |driver| {
        // SAFETY: the caller's image and pointer.
        unsafe {
            let handle = driver.load(image)?;
            store(module, handle as *mut c_void)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: *mut c_void) -> CUresult {
    cuLibraryUnload(module)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller's pointers.
    unsafe { cuLibraryGetKernel(function, module, name) }
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: *mut c_void, attribute: c_int, value: c_int) -> CUresult {
    work("cuFuncSetAttribute", |driver| {
        driver.set_attribute(driver.device as usize, function as usize, attribute, value)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: *mut c_void) -> CUresult {
    work("cuFuncGetAttribute", |driver| {
        let found = driver.attribute(driver.device as usize, function as usize, attribute)?;
        // SAFETY: the caller's pointer.
        unsafe { store(value, found) }
    })
}

/// `CUDASIM_OMIT=KERNEL:NUMBER`: the kernel loses one of its ordering instructions.
fn omit(kernel: &mut Kernel) {
    let Ok(wish) = std::env::var("CUDASIM_OMIT") else { return };
    let name = kernel.entry.name.clone();
    let Some(number) = wish.strip_prefix(&name).and_then(|rest| rest.strip_prefix(':')?.parse().ok()) else { return };
    match kernel.omit(number) {
        Ok(line) => {
            let text = kernel.text.get(line as usize - 1).map_or("", |l| l.trim());
            let source = kernel.code.iter().find(|inst| inst.line == line).map(|inst| inst.source);
            let file = source.and_then(|(file, line)| Some((kernel.files.iter().find(|(i, _)| *i == file)?, line)));
            let source = file.map_or(String::new(), |((_, file), line)| format!(" ({file}:{line})"));
            eprintln!("cudasim: {name} without PTX line {line}: {text}{source}");
        }
        Err(count) => eprintln!("cudasim: {name} has only {count} ordering instructions"),
    }
}
