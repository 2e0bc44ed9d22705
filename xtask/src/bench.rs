//! The comparison with PyTorch.

use crate::context::{Context, Result};

/// What `benchmarks/cpu.py` imports. PyPI's wheel for Linux runs without a GPU, but brings CUDA's libraries along: it
/// takes 5 GB of disk.
const TORCH: [&str; 2] = ["torch==2.11.0", "numpy==2.3.5"];

/// Runs `benchmarks/cpu.py` with the release library; `options` are passed on to it.
///
/// # Errors
/// If the library, PyTorch or the benchmark fails.
pub fn cpu(context: &Context, options: &[&str]) -> Result {
    let library = context.build_release()?;
    let venv = context.python_tool("torch-cpu", &TORCH)?;
    let mut python = context.command(venv.join("bin/python"));
    context.run(python.arg("benchmarks/cpu.py").arg("--library").arg(library).args(options))
}
