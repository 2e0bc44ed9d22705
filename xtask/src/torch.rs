//! PyTorch: the operators and their tests, and the trainer in C++.

use std::path::PathBuf;

use crate::context::{Context, Result};
use crate::tools::site_packages;

/// The environment of `cargo xtask bench cpu`. PyPI's wheel for Linux runs without a GPU, but brings CUDA's libraries
/// along: it takes 5 GB of disk.
const TORCH: [&str; 2] = ["torch==2.11.0", "numpy==2.3.5"];
/// In an environment of its own, so that its updates do not cost another PyTorch.
const PYTEST: [&str; 1] = ["pytest==9.2.0"];
/// By what factor the trainer's loss has to fall.
const LOSS_FALLS_BY: &str = "4";

impl Context {
    /// A virtual environment with PyTorch.
    ///
    /// # Errors
    /// If it cannot be installed.
    pub fn torch(&self) -> Result<PathBuf> {
        self.python_tool("torch-cpu", &TORCH)
    }
}

/// Installs the CMake package for this command and returns its prefix.
fn package(context: &Context) -> Result<PathBuf> {
    let prefix = context.target.join("torch/package");
    context.install(&prefix)?;
    Ok(prefix)
}

/// Builds the operators and returns the folder that has the Python package `jfa`.
fn operators(context: &Context) -> Result<PathBuf> {
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", package(context)?.display());
    let python = format!("-DJFA_TORCH_PYTHON={}", context.torch()?.join("bin/python").display());
    let (build, folder) = (context.target.join("cmake/torch"), context.target.join("torch/python"));
    context.configure(&context.root.join("bindings/torch"), &build, &[&prefix, &python, "-Ujfa_DIR"])?;
    let cmake = context.cmake()?;
    context.run(context.command(&cmake).arg("--build").arg(&build).args(["--parallel", "2"]))?;
    context.run(context.command(&cmake).arg("--install").arg(&build).arg("--prefix").arg(&folder))?;
    Ok(folder)
}

/// Builds the operators and runs their tests and those of the example for several ranks; returns pytest's output and
/// what became of it. `options` are pytest's.
///
/// # Errors
/// If PyTorch or pytest cannot be installed, or the build fails.
pub fn tests(context: &Context, options: &[&str]) -> Result<(String, Result)> {
    let folder = operators(context)?;
    let pytest = site_packages(&context.python_tool("pytest", &PYTEST)?)?;
    let mut python = context.command(context.torch()?.join("bin/python"));
    python.env("PYTHONPATH", std::env::join_paths([folder, pytest])?).env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "bindings/torch/tests", "examples/ddp"]);
    python.args(options);
    context.run_and_read(&mut python)
}

/// Builds the trainer in C++, and trains.
///
/// # Errors
/// If the build fails, the gradients differ from PyTorch's, or the loss does not fall as it should.
pub fn train(context: &Context) -> Result {
    let (prefix, libtorch) = (package(context)?, site_packages(&context.torch()?)?);
    let prefixes = format!("-DCMAKE_PREFIX_PATH={};{}", prefix.display(), libtorch.display());
    let build = context.target.join("cmake/cpp_trainer");
    context.configure(&context.root.join("examples/cpp_trainer"), &build, &[&prefixes, "-Ujfa_DIR"])?;
    context.run(context.command(context.cmake()?).arg("--build").arg(&build).args(["--parallel", "2"]))?;
    let mut trainer = context.command(build.join("jfa_cpp_trainer"));
    trainer.arg("--lengths").arg(context.root.join("examples/movielens100k_history_lengths.txt"));
    context.run(trainer.args(["--must-fall-by", LOSS_FALLS_BY]))
}
