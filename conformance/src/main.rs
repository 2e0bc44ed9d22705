//! The numeric and bug tables of jfa, run through the C ABI of a shipped library on any device.

mod api;
mod args;
mod case;
mod combine;
mod compare;
mod dtype;
mod geometry;
mod memory;
#[cfg(test)]
mod mutations;
mod reference;
mod report;
mod rng;
mod run;
mod session;
mod table;
mod vectors;

use std::cell::OnceCell;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Instant;

use api::Api;
use args::Args;
use case::Case;
use dtype::Dtype;
use memory::{Cuda, Host, Memory};
use report::Entry;
use run::{Known, Outcome};
use session::Target;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(text) => {
            eprintln!("{text}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match conform(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for; whether all of it passed.
fn conform(args: &Args) -> Result<bool, String> {
    let dtypes: &[Dtype] = match args.cuda {
        true => &[Dtype::Bf16, Dtype::Fp16],
        false => &[Dtype::Fp32, Dtype::Bf16, Dtype::Fp16],
    };
    let mut cases = table::all(dtypes, args.seed, args.random);
    cases.retain(|case| args.wants(&case.path()));
    let mut merges = combine::cases();
    merges.retain(|case| args.wants(&case.path()));
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.path()));
        merges.iter().for_each(|case| println!("{}", case.path()));
        return Ok(true);
    }
    let path = args.library.as_deref().ok_or("--library is missing")?;
    let api = Api::load(path)?;
    let memory: Box<dyn Memory> = if args.cuda { Box::new(Cuda::new(0)?) } else { Box::new(Host) };
    let device_type = i32::from(args.cuda);
    let target = Target { api: &api, memory: memory.as_ref(), device_type, forward_only: args.forward_only };
    if let Some(file) = &args.record {
        return vectors::record(Target { forward_only: true, ..target }, &memory.name(), file);
    }
    if let Some(file) = &args.vectors {
        return vectors::verify(Target { forward_only: true, ..target }, file);
    }
    // SAFETY: no precondition.
    println!("{} (version {}), {} cases", path.display(), unsafe { (api.version)() }, cases.len() + merges.len());
    let entries = table(target, args, &cases, &merges)?;
    print!("{}", report::summary(&entries));
    if let Some(file) = &args.json {
        std::fs::write(file, report::json(&entries)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let failed = entries.iter().filter(|entry| entry.failure().is_some()).count();
    let skipped = entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Skipped(_))).count();
    println!("{} passed, {failed} failed", entries.len() - failed - skipped);
    let wanted = (cases.len() + merges.len()) as u64 * args.repeat;
    Ok(failed == 0 && entries.len() as u64 == wanted && !entries.is_empty())
}

/// Runs everything as often as was asked for, until the device fails for good.
fn table(target: Target, args: &Args, cases: &[Case], merges: &[combine::Case]) -> Result<Vec<Entry>, String> {
    let known: Vec<OnceCell<Known>> = cases.iter().map(|_| OnceCell::new()).collect();
    let mut entries = Vec::new();
    for repetition in 0..args.repeat {
        let name = |path: String| match repetition {
            0 => path,
            _ => format!("{path}, repetition {repetition}"),
        };
        let begin = |path: String| {
            if args.verbose {
                println!("{}", name(path.clone()));
            }
            target.memory.begin(repetition, &path).map(|()| Instant::now())
        };
        // A fault of the device stays for good: nothing that follows would mean anything.
        let mut end = |entry: Entry, details: &dyn Debug| {
            let path = name(entry.path.clone());
            if let Some(text) = entry.failure() {
                println!("FAILED {path} (--seed {} --random {}): {text}", args.seed, args.random);
                if entry.group == "random" {
                    println!("       {details:?}");
                }
            }
            entries.push(entry);
            let state = target.memory.synchronize();
            state.inspect_err(|text| println!("stopped after {path}: {text}")).is_ok()
        };
        for (case, known) in cases.iter().zip(&known) {
            let start = begin(case.path())?;
            let outcome = run::run(target, case, args.seed, known);
            let seconds = start.elapsed().as_secs_f64();
            if !end(Entry { group: case.group, path: case.path(), outcome, seconds }, case) {
                return Ok(entries);
            }
        }
        for case in merges {
            begin(case.path())?;
            if !end(case.run(target, args.seed), &()) {
                return Ok(entries);
            }
        }
    }
    Ok(entries)
}
