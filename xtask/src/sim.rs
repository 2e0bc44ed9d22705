//! Runs the CUDA kernels of the real library without a GPU, on cudasim.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::context::{Context, Result};
use crate::toolchain;

/// The compiler whose kernels hardware is known to run.
const TRITON: [&str; 2] = ["triton==3.6.0", "setuptools"];

const USAGE: &str = "\
usage: cargo xtask sim triton
       cargo xtask sim [--seeds N] [--first N] [--device h200] [--sms N] [-- TEST ...]
  --seeds N      interleavings to try (default 3)
  --first N      the first of them (default 1)
  --device NAME  the GPU that is modelled (default h200)
  --sms N        its multiprocessors (default 4: persistent kernels then take several turns)
  TEST           part of the names of conformance cases (default: all)";

/// What one run of the table takes.
pub struct Tables {
    library: PathBuf,
    driver: PathBuf,
    conformance: PathBuf,
}

/// One run of the table.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    pub seed: u64,
    pub device: &'a str,
    pub multiprocessors: u32,
    /// Random cases.
    pub random: u32,
}

impl Tables {
    /// Builds cudasim, jfa with its CUDA kernels, and the test driver.
    ///
    /// # Errors
    /// If a build fails.
    pub fn build(context: &Context) -> Result<Self> {
        toolchain::nvcc(context)?;
        let library = context.build_release()?;
        let folder = context.target.join("release");
        for package in ["cudasim", "jfa-conformance"] {
            context.run(context.cargo().args(["build", "--quiet", "--release", "--package", package]))?;
        }
        let driver = context.target.join("cudasim");
        fs::create_dir_all(&driver)?;
        for name in ["libcuda.so", "libcuda.so.1"] {
            let copy = driver.join(name);
            if copy.exists() {
                fs::remove_file(&copy)?;
            }
            fs::copy(folder.join("libcudasim.so"), copy)?;
        }
        Ok(Tables { library, driver, conformance: folder.join("jfa-conformance") })
    }

    /// The command that runs the cases whose names contain `filter`.
    pub fn command(&self, context: &Context, shape: Shape, filter: &str) -> Command {
        let mut command = context.command(&self.conformance);
        // There is no backward on CUDA devices yet.
        command.args(["--device", "cuda", "--forward-only", "--filter", filter, "--library"]).arg(&self.library);
        command.args(["--random", &shape.random.to_string()]);
        command.env("LD_LIBRARY_PATH", &self.driver).env("CUDASIM_SEED", shape.seed.to_string());
        command.env("CUDASIM_DEVICE", shape.device).env("CUDASIM_SMS", shape.multiprocessors.to_string());
        command
    }
}

/// Compiles a few kernels with Triton and returns the tests that run them on cudasim.
///
/// # Errors
/// If Triton cannot be had or a kernel does not compile.
pub fn triton(context: &Context) -> Result<Command> {
    let python = context.python_tool("triton", &TRITON)?.join("bin/python");
    let folder = context.target.join("triton");
    for capability in ["90", "100"] {
        let mut compile = context.command(&python);
        compile.arg("sim/tests/triton/kernels.py").arg(folder.join(capability)).arg(capability);
        context.run(compile.env("TRITON_CACHE_DIR", folder.join("cache")))?;
    }
    let mut cargo = context.cargo();
    cargo.args(["test", "--release", "--package", "cudasim", "--test", "triton", "--", "--ignored"]);
    cargo.env("CUDASIM_TRITON", folder);
    Ok(cargo)
}

/// `cargo xtask sim`: every seed on every test that is named.
///
/// # Errors
/// At the first run that fails, with its seed.
pub fn run(context: &Context, words: &[&str]) -> Result {
    if words == ["triton"] {
        return context.run(&mut triton(context)?);
    }
    let (mut seeds, mut first, mut device, mut sms) = (3u64, 1u64, "h200", 4u32);
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        let value = words.next().ok_or(USAGE)?;
        match word {
            "--seeds" => seeds = value.parse().map_err(|_| USAGE)?,
            "--first" => first = value.parse().map_err(|_| USAGE)?,
            "--device" => device = value,
            "--sms" => sms = value.parse().map_err(|_| USAGE)?,
            _ => return Err(USAGE.into()),
        }
    }
    let tests: Vec<&str> = words.collect();
    let tests = if tests.is_empty() { vec![""] } else { tests };
    let tables = Tables::build(context)?;
    for seed in first..first + seeds {
        println!("seed {seed}");
        for test in &tests {
            let shape = Shape { seed, device, multiprocessors: sms, random: 60 };
            let mut command = tables.command(context, shape, test);
            context.run(&mut command).map_err(|error| format!("seed {seed}: {error}"))?;
        }
    }
    println!("{seeds} seeds passed");
    Ok(())
}
