//! The C API: guard, validate, call. No logic lives here, and cbindgen reads just this folder.

// The names are those of the header.
#![allow(non_camel_case_types)]
// The doc comments are the header's text: its rules stand for the sections on safety.
#![allow(clippy::missing_safety_doc)]

mod attention;
mod combine;
mod logging;
mod plan;
mod status;
mod types;

pub use attention::*;
pub use combine::*;
pub use logging::*;
pub use plan::*;
pub use status::*;
pub use types::*;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, Status};

/// Runs the body of a C function: errors and panics become a status and this thread's last error.
fn guard(body: impl FnOnce() -> Result<()>) -> jfa_status {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Success.into(),
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(String::from);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Error::new(Status::Internal, format!("panic: {}", text.as_deref().unwrap_or("without a message")))
        }
    };
    log::error!("{error}");
    status::set_last_error(&error.message);
    error.status.into()
}

/// A struct of the API that begins with its size, so that fields can be appended in later versions.
///
/// # Safety
/// Implementors are `repr(C)`, begin with a `usize` that holds the size, and are valid for any bit pattern.
unsafe trait Versioned: Copy {
    /// Name in messages.
    const NAME: &'static str;
    /// Size in the first version that had it.
    const FIRST_SIZE: usize;
}

/// Larger sizes are taken for garbage rather than for a later version.
const MAX_STRUCT_SIZE: usize = 4096;

/// The `struct_size` of `*pointer`, checked.
///
/// # Safety
/// `pointer` is null or points to a `usize`.
unsafe fn struct_size<T: Versioned>(pointer: *const T) -> Result<usize> {
    if pointer.is_null() {
        return Err(Error::new(Status::NullPointer, format!("pointer to {} is null", T::NAME)));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    if !(T::FIRST_SIZE..=MAX_STRUCT_SIZE).contains(&size) {
        let message =
            format!("{}.struct_size is {size}, but must be sizeof({}) = {}", T::NAME, T::NAME, size_of::<T>());
        return Err(Error::new(Status::StructSize, message));
    }
    Ok(size)
}

/// Copies a sized struct: fields beyond the caller's version keep the value of `default`, and bytes beyond ours must
/// be 0.
///
/// # Safety
/// `pointer` is null or points to as many bytes as its `struct_size` says.
unsafe fn read_sized<T: Versioned>(pointer: *const T, default: T) -> Result<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { struct_size(pointer) }?;
    // SAFETY: as above; `size` bytes are readable.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if let Some(at) = bytes[known..].iter().position(|&byte| byte != 0) {
        let message = format!(
            "{}.struct_size is {size}, of a later version than this library's {}, and byte {} is set: this feature is \
             not available",
            T::NAME,
            size_of::<T>(),
            known + at
        );
        return Err(Error::new(Status::StructSize, message));
    }
    let mut value = default;
    // SAFETY: both sides hold `known` bytes, and any bit pattern is a valid `T`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), known) };
    Ok(value)
}

/// Borrows the plan behind a handle.
///
/// # Safety
/// `plan` is null or a live handle.
unsafe fn plan_ref<'a>(plan: *const jfa_plan) -> Result<&'a crate::plan::Plan> {
    // SAFETY: the caller's promise; handles are boxed plans.
    unsafe { plan.cast::<crate::plan::Plan>().as_ref() }.ok_or_else(|| null("plan"))
}

fn null(name: &str) -> Error {
    Error::new(Status::NullPointer, format!("{name} is null"))
}

fn workspace(data: *mut c_void, size: usize) -> crate::plan::Workspace {
    crate::plan::Workspace { data, size }
}
