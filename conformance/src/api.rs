//! The C ABI of a shared library, looked up symbol by symbol.

use std::ffi::{CStr, c_char};
use std::path::Path;

use jfa::capi::{
    jfa_backward_args, jfa_batch, jfa_combine_args, jfa_forward_args, jfa_plan, jfa_plan_desc, jfa_plan_details,
    jfa_stream,
};
use libloading::Library;

/// Status codes that the tables expect, as the header numbers them.
pub mod status {
    /// JFA_STATUS_SUCCESS.
    pub const SUCCESS: i32 = 0;
    /// JFA_STATUS_INVALID_OFFSETS.
    pub const INVALID_OFFSETS: i32 = 7;
    /// JFA_STATUS_NOT_READY.
    pub const NOT_READY: i32 = 8;
}

macro_rules! api {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Entry points of a jfa library. Statuses are plain integers, so that an unknown one does no harm.
        pub struct Api {
            $(#[doc = $symbol] pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            /// Keeps the library loaded; none for one that is linked in.
            pub _library: Option<Library>,
        }

        impl Api {
            /// Loads the library at `path`.
            pub fn load(path: &Path) -> Result<Self, String> {
                // SAFETY: jfa has no initialiser with preconditions.
                let library = unsafe { Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))?;
                // SAFETY: the types are those of the header.
                $(let $field = *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                    .map_err(|e| format!("{}: {e}", $symbol))?;)*
                Ok(Api { $($field,)* _library: Some(library) })
            }
        }
    };
}

api! {
    version = "jfa_version": fn() -> u32;
    last_error = "jfa_last_error": fn() -> *const c_char;
    plan_create = "jfa_plan_create": fn(*const jfa_plan_desc, *mut *mut jfa_plan) -> i32;
    plan_update = "jfa_plan_update": fn(*mut jfa_plan, *const jfa_batch, jfa_stream) -> i32;
    plan_info = "jfa_plan_info": fn(*const jfa_plan, *mut jfa_plan_details) -> i32;
    plan_check = "jfa_plan_check": fn(*const jfa_plan) -> i32;
    plan_workspace_size = "jfa_plan_workspace_size": fn(*const jfa_plan, *mut usize, *mut usize) -> i32;
    plan_destroy = "jfa_plan_destroy": fn(*mut jfa_plan);
    forward = "jfa_forward": fn(*const jfa_plan, *const jfa_forward_args, jfa_stream) -> i32;
    backward = "jfa_backward": fn(*const jfa_plan, *const jfa_backward_args, jfa_stream) -> i32;
    combine = "jfa_combine": fn(*const jfa_combine_args, jfa_stream) -> i32;
}

impl Api {
    /// Message of this thread's last failed call.
    pub fn message(&self) -> String {
        // SAFETY: never null, and valid until the next failing call.
        unsafe { CStr::from_ptr((self.last_error)()) }.to_string_lossy().into_owned()
    }

    /// Turns any status but success into an error that names the call.
    pub fn expect(&self, call: &str, status: i32) -> Result<(), String> {
        match status {
            status::SUCCESS => Ok(()),
            _ => Err(format!("{call} returned {status}: {}", self.message())),
        }
    }
}
