//! The counters of each kernel, printed when the process ends, if `CUDASIM_REPORT=1`.

use std::fmt::Write;

use super::{DRIVER, Total};
use crate::machine::{Counters, Work};

/// One line a role, one column a kind of work; columns without any are left out.
fn table(counters: &Counters) -> String {
    let total = counters.total();
    let wanted: Vec<usize> = (0..).zip(total.columns()).filter(|(_, c)| c.1 > 0).map(|(i, _)| i).collect();
    let mut text = format!("  {:<8}", "warps");
    for (name, _) in wanted.iter().map(|&i| total.columns()[i]) {
        let _ = write!(text, "{name:>10}");
    }
    let roles = counters.roles();
    let mut line = |name: String, work: &Work| {
        let _ = write!(text, "\n  {name:<8}");
        for (_, value) in wanted.iter().map(|&i| work.columns()[i]) {
            let _ = write!(text, "{:>10}", short(value));
        }
    };
    for role in &roles {
        let name =
            if role.first == role.last { role.first.to_string() } else { format!("{}-{}", role.first, role.last) };
        line(name, &role.work);
    }
    if roles.len() > 1 {
        line("all".into(), &total);
    }
    text
}

/// Lines of instructions that were never executed, neighbours as ranges; `-` if there are none.
fn unreached(reached: &[bool], lines: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut before = true;
    for (&reached, &line) in reached.iter().zip(lines) {
        match ranges.last_mut() {
            _ if reached => {}
            Some(range) if !before => range.1 = line,
            _ => ranges.push((line, line)),
        }
        before = reached;
    }
    let text = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    if ranges.is_empty() { "-".into() } else { text.collect::<Vec<_>>().join(" ") }
}

/// Four digits, or three and a power of ten.
fn short(value: u64) -> String {
    let mut scaled = value as f64;
    for suffix in ["", "k", "M", "G", "T"] {
        if scaled < 9999.5 || suffix == "T" {
            return match suffix {
                "" => value.to_string(),
                _ if scaled < 99.95 => format!("{scaled:.1}{suffix}"),
                _ => format!("{scaled:.0}{suffix}"),
            };
        }
        scaled /= 1e3;
    }
    value.to_string()
}

extern "C" fn print() {
    let Ok(guard) = DRIVER.lock() else { return };
    let Some(driver) = guard.as_ref().filter(|d| d.report > 0) else { return };
    for Total { kernel, launches, counters, seconds } in &driver.totals {
        let speed = 32e-6 * counters.total().instructions as f64 / seconds.max(1e-9);
        let reached = counters.reached.iter().filter(|&&reached| reached).count();
        eprintln!(
            "cudasim: {}: {launches} launches, {} clusters, {seconds:.2} s, {speed:.1} M thread-instructions/s, {:.1}% of \
             {} instructions reached",
            kernel.entry.name,
            counters.clusters,
            100.0 * reached as f64 / counters.reached.len() as f64,
            counters.reached.len()
        );
        eprintln!("{}", table(counters));
        if driver.report > 1 {
            let lines: Vec<u32> = kernel.code.iter().map(|inst| inst.line).collect();
            eprintln!("  PTX lines not reached: {}", unreached(&counters.reached, &lines));
        }
    }
    if !driver.totals.is_empty() {
        eprintln!(
            "cudasim: instr: warp instructions; ld, st, bulk: bytes; conflicts: further passes of shared memory for \
             banks; mma flop: operations of matrix instructions; mbarrier, barrier, other: waits that had to wait"
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_not_reached() {
        assert_eq!(unreached(&[true, false, false, true, false], &[5, 7, 9, 10, 12]), "7-9 12");
        assert_eq!(unreached(&[true], &[5]), "-");
    }

    #[test]
    fn roles_are_lines() {
        let mut counters = Counters::default();
        for warp in 0..8 {
            counters.of(warp).instructions = 40_000;
        }
        counters.of(0).bulk_loaded = 1 << 20;
        counters.of(0).mbarrier_waits = 12;
        let lines: Vec<String> =
            table(&counters).lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            ["warps instr bulk in mbarrier", "0 40.0k 1049k 12", "1-3 120k 0 0", "4-7 160k 0 0", "all 320k 1049k 12"]
        );
        assert_eq!(
            [short(9999), short(10_000), short(12_345_678), short(u64::MAX)],
            ["9999", "10.0k", "12.3M", "18446744T"]
        );
    }
}
