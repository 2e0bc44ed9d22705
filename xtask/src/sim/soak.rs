//! Very many interleavings of every kernel, on small cases.

use std::collections::BTreeMap;

use super::{Options, PAIRS, Shape, Tables};
use crate::context::{Context, Result};

/// A part of a soak: cases that together run kernels of a device.
struct Soak {
    /// Parts of their names.
    cases: &'static [&'static str],
    /// Whether the Blackwell backward takes pairs of CTAs.
    pairs: bool,
}

/// What runs every kernel of a device once in each interleaving.
fn soaks(device: &str) -> Vec<Soak> {
    match device {
        "h200" => vec![Soak { cases: &["soak/", "combine/two-from"], pairs: false }],
        _ => vec![
            Soak { cases: &["soak/packed", "soak/masked", "combine/two-from"], pairs: false },
            Soak { cases: &["soak/packed-d128", "soak/masked-d128"], pairs: true },
        ],
    }
}

/// Interleavings that one process of a soak runs, for something to be seen now and then.
const SOAK_BATCH: u64 = 20;

/// Every seed on small cases, in which each must run every kernel of the device.
///
/// # Errors
/// At the first batch that fails, with its output and the commands that repeat it; if a kernel was launched less often
/// than there are seeds.
pub fn run(context: &Context, options: &Options) -> Result {
    let tables = Tables::build(context)?;
    let mut launches: BTreeMap<String, u64> = tables.of_device(options.device).into_iter().map(|k| (k, 0)).collect();
    let seeds = options.seeds.end - options.seeds.start;
    for first in options.seeds.clone().step_by(SOAK_BATCH as usize) {
        let batch = SOAK_BATCH.min(options.seeds.end - first);
        for part in soaks(options.device) {
            // Pairs share half as many multiprocessors.
            let multiprocessors = options.multiprocessors * if part.pairs { 2 } else { 1 };
            let shape = Shape { multiprocessors, ..options.shape(first, 0) };
            let mut command = tables.command(context, shape, part.cases[0]);
            for case in &part.cases[1..] {
                command.args(["--filter", case]);
            }
            let pairs = u8::from(part.pairs).to_string();
            command.args(["--repeat", &batch.to_string()]).env("CUDASIM_REPORT", "1").env(PAIRS, &pairs);
            let output = command.output()?;
            let (text, report) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if !output.status.success() {
                print!("{text}{report}");
                for (path, repetition) in failures(&text) {
                    let shape = format!("--device {} --sms {multiprocessors}", options.device);
                    let seed = first + repetition;
                    println!("again: {PAIRS}={pairs} cargo xtask sim {shape} --seeds 1 --first {seed} -- {path}");
                }
                return Err(format!("seeds {first} to {}: failed", first + batch - 1).into());
            }
            for (kernel, count) in launched(&report) {
                *launches.entry(kernel.into()).or_default() += count;
            }
        }
        println!("seeds {first} to {} passed", first + batch - 1);
    }
    let few: Vec<_> = launches.iter().filter(|(_, count)| **count < seeds).collect();
    println!("{seeds} seeds passed, {} kernels, {} launches", launches.len(), launches.values().sum::<u64>());
    if few.is_empty() { Ok(()) } else { Err(format!("kernels with fewer launches than seeds: {few:?}").into()) }
}

/// Cases that a run of the table says have failed, and in which repetition: `FAILED NAME, repetition 3 (...): ...`.
fn failures(text: &str) -> Vec<(&str, u64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("FAILED "));
    let names = lines.filter_map(|line| line.split_once(" (").map(|(name, _)| name));
    let split = |name: &'_ str| -> Option<(usize, u64)> {
        let (path, repetition) = name.split_once(", repetition ")?;
        Some((path.len(), repetition.parse().ok()?))
    };
    names.map(|name| split(name).map_or((name, 0), |(end, repetition)| (&name[..end], repetition))).collect()
}

/// Kernels of a report and their launches: `cudasim: NAME: 2 launches, ...`.
fn launched(report: &str) -> impl Iterator<Item = (&str, u64)> {
    report.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cudasim: ")?.split_once(": ")?;
        Some((name, rest.split_once(" launches, ")?.0.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_soak() {
        let text =
            "FAILED soak/a/bf16 (--seed 1 --random 0): wrong\nFAILED soak/b/fp16, repetition 17 (--seed 1): O (x)\n";
        assert_eq!(failures(text), [("soak/a/bf16", 0), ("soak/b/fp16", 17)]);
        let report = "cudasim: jfa_plan: 36 launches, 36 clusters, 0.57 s\n  warps  instr\ncudasim: other\n";
        assert_eq!(launched(report).collect::<Vec<_>>(), [("jfa_plan", 36)]);
    }
}
