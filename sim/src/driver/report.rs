//! The counters of each kernel, printed when the process ends, if `CUDASIM_REPORT=1`.

use super::DRIVER;

extern "C" fn print() {
    let Ok(guard) = DRIVER.lock() else { return };
    let Some(driver) = guard.as_ref().filter(|d| d.report) else { return };
    for (name, launches, c, seconds) in &driver.totals {
        eprintln!("cudasim: {name}: {launches} launches, {} clusters, {seconds:.2} s", c.clusters);
        eprintln!(
            "  {:>14} warp instructions ({:.1} M thread-instructions/s)",
            c.instructions,
            32e-6 * c.instructions as f64 / seconds.max(1e-9)
        );
        for (value, what) in [
            (c.global_read, "bytes loaded from global memory"),
            (c.global_written, "bytes stored to global memory"),
            (c.bulk_loaded, "bytes loaded by bulk copies"),
            (c.bulk_stored, "bytes stored by bulk copies"),
            (c.shared_read, "bytes loaded from shared memory"),
            (c.shared_written, "bytes stored to shared memory"),
            (c.matrix_flops, "floating-point operations of matrix instructions"),
            (c.bank_conflicts, "further passes of shared memory for bank conflicts"),
            (c.mbarrier_waits, "mbarrier waits that had to wait"),
            (c.barrier_waits, "barrier waits that had to wait"),
        ] {
            eprintln!("  {value:>14} {what}");
        }
    }
}

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> i32;
}

/// Prints the report when the process ends.
pub fn at_exit() {
    // SAFETY: the callback lives as long as this library, which is never unloaded.
    unsafe { atexit(print) };
}
