//! Status codes, their texts, and the version.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::error::Status;

/// Result of every call. Values are never renumbered or reused.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jfa_status {
    /// The call did what it says.
    Success = 0,
    /// An argument breaks a rule that its documentation states.
    InvalidArgument = 1,
    /// A pointer that must point to something is null.
    NullPointer = 2,
    /// A pointer or stride is not a multiple of the alignment it needs.
    Misaligned = 3,
    /// `struct_size` is none that this version knows, or a field of a newer version is set.
    StructSize = 4,
    /// Well formed, but this device or build does not offer it.
    Unsupported = 5,
    /// The workspace is smaller than jfa_plan_workspace_size() says.
    WorkspaceTooSmall = 6,
    /// Offsets or lengths of the batch decrease, are negative, or pass the plan's maxima.
    InvalidOffsets = 7,
    /// The plan has no valid batch: jfa_plan_update() was not called, or failed.
    NotReady = 8,
    /// No CUDA driver is installed, or it cannot be loaded.
    NoDriver = 9,
    /// There is no device with this index.
    NoDevice = 10,
    /// A call of the CUDA driver failed; jfa_last_error() has its name and error.
    Cuda = 11,
    /// Memory could not be allocated.
    OutOfMemory = 12,
    /// A bug in jfa; jfa_last_error() has its text. The plan should be destroyed.
    Internal = 13,
}

impl From<Status> for jfa_status {
    fn from(status: Status) -> Self {
        match status {
            Status::Success => jfa_status::Success,
            Status::InvalidArgument => jfa_status::InvalidArgument,
            Status::NullPointer => jfa_status::NullPointer,
            Status::Misaligned => jfa_status::Misaligned,
            Status::StructSize => jfa_status::StructSize,
            Status::Unsupported => jfa_status::Unsupported,
            Status::WorkspaceTooSmall => jfa_status::WorkspaceTooSmall,
            Status::InvalidOffsets => jfa_status::InvalidOffsets,
            Status::NotReady => jfa_status::NotReady,
            Status::NoDriver => jfa_status::NoDriver,
            Status::NoDevice => jfa_status::NoDevice,
            Status::Cuda => jfa_status::Cuda,
            Status::OutOfMemory => jfa_status::OutOfMemory,
            Status::Internal => jfa_status::Internal,
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

pub(super) fn set_last_error(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

/// Version of the library that runs: major * 10000 + minor * 100 + patch.
///
/// Compare it with JFA_VERSION, the version of the header. Before 1.0 the two must agree in major and minor.
#[unsafe(no_mangle)]
pub extern "C" fn jfa_version() -> u32 {
    let part = |text: &str| text.parse().unwrap_or(0u32);
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    part(major) * 10000 + part(minor) * 100 + part(env!("CARGO_PKG_VERSION_PATCH"))
}

/// English description of a status: static text, never NULL, "unknown status" for other values.
#[unsafe(no_mangle)]
pub extern "C" fn jfa_status_string(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|&&s| s as i32 == status);
    known.map_or(c"unknown status", |s| s.text()).as_ptr()
}

/// What the last failed call of this thread complained about: the argument, its value and the rule.
///
/// Never NULL; empty before the first failure. Valid until the next failing call on this thread; a successful call
/// does not clear it.
#[unsafe(no_mangle)]
pub extern "C" fn jfa_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
