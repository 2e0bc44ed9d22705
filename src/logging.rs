//! Passes the messages of the `log` crate to the callback that the host program installed.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Once, RwLock};

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Receives one message: its level (1 error to 5 trace), its text, and the pointer given at installation.
pub type Callback = unsafe extern "C" fn(level: i32, message: *const c_char, user: *mut c_void);

#[derive(Clone, Copy)]
struct Sink {
    callback: Callback,
    user: *mut c_void,
}

// SAFETY: the C API demands a callback, and a `user` pointer, that any thread may use.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);
static INSTALL: Once = Once::new();

struct Forwarder;

impl Log for Forwarder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // The copy lets a callback install another one without a deadlock.
        let sink = SINK.read().map_or(None, |sink| *sink);
        let (Some(sink), Ok(text)) = (sink, CString::new(record.args().to_string().replace('\0', " "))) else { return };
        // SAFETY: the callback and its pointer stay valid until another callback is set, by contract.
        unsafe { (sink.callback)(record.level() as i32, text.as_ptr(), sink.user) }
    }

    fn flush(&self) {}
}

/// Sends messages of `level` (0 none, 1 error, 2 warning, 3 information, 4 debug, 5 trace) and below to `callback`.
pub fn set_callback(level: i32, callback: Option<Callback>, user: *mut c_void) {
    INSTALL.call_once(|| {
        // Fails only if a logger is set already: impossible for the cdylib's own statics, harmless elsewhere.
        log::set_logger(&Forwarder).ok();
    });
    if let Ok(mut sink) = SINK.write() {
        *sink = callback.map(|callback| Sink { callback, user });
    }
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    let filter = levels.iter().rfind(|&&l| l as i32 <= level).map_or(LevelFilter::Off, Level::to_level_filter);
    log::set_max_level(if callback.is_some() { filter } else { LevelFilter::Off });
}
