//! The demo: a real jagged batch through the C ABI.

use crate::context::{Context, Result};

/// Builds and runs the demo.
pub fn run(_context: &Context) -> Result {
    Err("the demo is not written yet".into())
}
