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

use std::process::ExitCode;
use std::time::Instant;

use api::Api;
use args::Args;
use dtype::Dtype;
use memory::{Cuda, Host, Memory};
use report::Entry;
use run::Outcome;
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
    cases.retain(|case| case.path().contains(&args.filter));
    let merges = combine::cases(&args.filter);
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
    let mut entries = Vec::new();
    for case in &cases {
        if args.verbose {
            println!("{}", case.path());
        }
        let begin = Instant::now();
        let outcome = run::run(target, case, args.seed);
        let entry = Entry { group: case.group, path: case.path(), outcome, seconds: begin.elapsed().as_secs_f64() };
        if let Some(text) = entry.failure() {
            println!("FAILED {} (--seed {} --random {}): {text}", entry.path, args.seed, args.random);
            if case.group == "random" {
                println!("       {case:?}");
            }
        }
        // A fault of the device stays for good: nothing that follows would mean anything.
        if let Err(text) = target.memory.synchronize() {
            println!("stopped after {}: {text}", entry.path);
            entries.push(entry);
            break;
        }
        entries.push(entry);
    }
    for case in merges.iter().take_while(|_| target.memory.synchronize().is_ok()) {
        let entry = case.run(target, args.seed);
        if let Some(text) = entry.failure() {
            println!("FAILED {} (--seed {}): {text}", entry.path, args.seed);
        }
        entries.push(entry);
    }
    print!("{}", report::summary(&entries));
    if let Some(file) = &args.json {
        std::fs::write(file, report::json(&entries)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let failed = entries.iter().filter(|entry| entry.failure().is_some()).count();
    let skipped = entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Skipped(_))).count();
    println!("{} passed, {failed} failed", entries.len() - failed - skipped);
    Ok(failed == 0 && entries.len() == cases.len() + merges.len() && !entries.is_empty())
}
