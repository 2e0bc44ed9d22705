//! What can go wrong, as a status for programs and a text for people.

use std::fmt;

/// Result of every call of the C API. Values are never renumbered or reused.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
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
    /// A combination that is well formed, but that this device or build does not offer.
    Unsupported = 5,
    /// The workspace is smaller than `jfa_plan_workspace_size` says.
    WorkspaceTooSmall = 6,
    /// The offsets or lengths of the batch decrease, are negative, or pass the plan's maxima.
    InvalidOffsets = 7,
    /// The plan has no valid batch: `jfa_plan_update` was not called, or failed.
    NotReady = 8,
    /// No CUDA driver is installed, or it cannot be loaded.
    NoDriver = 9,
    /// There is no device with this index.
    NoDevice = 10,
    /// A call of the CUDA driver failed; the message has its name and error.
    Cuda = 11,
    /// Memory could not be allocated.
    OutOfMemory = 12,
    /// A bug in jfa: it panicked. The message has the panic's text.
    Internal = 13,
}

impl Status {
    /// Every status, in the order of its value.
    pub const ALL: [Status; 14] = [
        Status::Success,
        Status::InvalidArgument,
        Status::NullPointer,
        Status::Misaligned,
        Status::StructSize,
        Status::Unsupported,
        Status::WorkspaceTooSmall,
        Status::InvalidOffsets,
        Status::NotReady,
        Status::NoDriver,
        Status::NoDevice,
        Status::Cuda,
        Status::OutOfMemory,
        Status::Internal,
    ];

    /// A short English description that does not depend on the failing call.
    pub const fn text(self) -> &'static std::ffi::CStr {
        match self {
            Status::Success => c"success",
            Status::InvalidArgument => c"invalid argument",
            Status::NullPointer => c"null pointer",
            Status::Misaligned => c"misaligned pointer or stride",
            Status::StructSize => c"wrong struct_size",
            Status::Unsupported => c"not supported on this device or in this build",
            Status::WorkspaceTooSmall => c"workspace too small",
            Status::InvalidOffsets => c"invalid offsets",
            Status::NotReady => c"plan has no valid batch",
            Status::NoDriver => c"no CUDA driver",
            Status::NoDevice => c"no such device",
            Status::Cuda => c"CUDA driver error",
            Status::OutOfMemory => c"out of memory",
            Status::Internal => c"internal error",
        }
    }
}

/// A failed call: its status, and a message that names the argument, its value and the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Which kind of failure.
    pub status: Status,
    /// What `jfa_last_error` shows.
    pub message: String,
}

impl Error {
    /// An error of the given kind.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error { status, message: message.into() }
    }

    /// An argument outside its rule: `name` is `value`, but must be `rule`.
    pub fn invalid(name: &str, value: impl fmt::Display, rule: impl fmt::Display) -> Self {
        Error::new(Status::InvalidArgument, format!("{name} is {value}, but must be {rule}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.text().to_string_lossy(), self.message)
    }
}

impl std::error::Error for Error {}

/// Shorthand for a result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
