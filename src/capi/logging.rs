//! The log callback.

use std::ffi::{c_char, c_void};

use super::{guard, jfa_status};
use crate::logging;

/// Receives one log message.
///
/// `level` is 1 (error) to 5 (trace). `message` is UTF-8 and valid during the call only. `user` is the pointer given
/// to jfa_set_log_callback(). Called from any thread that runs jfa, also from several at once.
pub type jfa_log_callback = Option<unsafe extern "C" fn(level: i32, message: *const c_char, user: *mut c_void)>;

/// Sends log messages to `callback`, or nowhere if it is NULL.
///
/// `level` is the most detailed level to send: 0 none, 1 error, 2 warning, 3 information, 4 debug, 5 trace. Process
/// wide; may be called at any time from any thread. A message under way when the callback is replaced may still reach
/// the old one.
///
/// Errors: JFA_STATUS_INVALID_ARGUMENT for another level.
#[unsafe(no_mangle)]
pub extern "C" fn jfa_set_log_callback(level: i32, callback: jfa_log_callback, user: *mut c_void) -> jfa_status {
    guard(|| {
        if !(0..=5).contains(&level) {
            return Err(crate::error::Error::invalid("level", level, "0 to 5"));
        }
        logging::set_callback(level, callback, user);
        Ok(())
    })
}
