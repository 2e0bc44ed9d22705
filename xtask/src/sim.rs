//! Runs the CUDA kernels of the real library without a GPU, on cudasim.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::{Context, Result};
use crate::tools::site_packages;

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--first N] [--device h200] [--sms N] [-- TEST ...]
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
    /// Builds cudasim, jfa with its CUDA kernels, and the test driver; `None` where there is no CUDA compiler.
    ///
    /// # Errors
    /// If a build fails.
    pub fn build(context: &Context) -> Result<Option<Self>> {
        let Some(nvcc) = nvcc(context) else { return Ok(None) };
        // A folder of its own: the library with kernels must not replace the one that other commands package.
        let folder = context.target.join("sim");
        let build = |words: &[&str]| {
            let mut cargo = context.cargo();
            cargo.args(["build", "--quiet", "--release"]).args(words).arg("--target-dir").arg(&folder);
            context.run(cargo.env("JFA_NVCC", &nvcc))
        };
        build(&["--package", "cudasim"])?;
        build(&["--package", "jfa-conformance"])?;
        build(&["--lib", "--package", "jfa", "--features", "cuda"])?;
        let driver = folder.join("driver");
        fs::create_dir_all(&driver)?;
        for name in ["libcuda.so", "libcuda.so.1"] {
            let copy = driver.join(name);
            if copy.exists() {
                fs::remove_file(&copy)?;
            }
            fs::copy(folder.join("release/libcudasim.so"), copy)?;
        }
        let release = folder.join("release");
        Ok(Some(Tables { library: release.join("libjfa.so"), driver, conformance: release.join("jfa-conformance") }))
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

/// nvcc from `JFA_NVCC` or from `cargo xtask toolchain`.
fn nvcc(context: &Context) -> Option<PathBuf> {
    let named = std::env::var_os("JFA_NVCC").map(PathBuf::from);
    let installed = site_packages(&context.target.join("tools/cuda")).ok();
    let installed = installed.map(|site| site.join("nvidia/cu13/bin/nvcc"));
    named.into_iter().chain(installed).find(|path: &PathBuf| Path::is_file(path))
}

/// `cargo xtask sim`: every seed on every test that is named.
///
/// # Errors
/// At the first run that fails, with its seed.
pub fn run(context: &Context, words: &[&str]) -> Result {
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
    let Some(tables) = Tables::build(context)? else {
        return Err("no CUDA compiler: run `cargo xtask toolchain`, or set JFA_NVCC".into());
    };
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
