//! The CUDA compiler, from PyPI: no installed toolkit and no GPU is needed to build the kernels.

use std::path::PathBuf;

use crate::context::{Context, Result};
use crate::tools::site_packages;

/// Every part that takes part in a compilation is pinned to CUDA 13.0: nvcc alone would bring a newer front end, whose
/// PTX its own assembler refuses. The two disassemblers are published from 13.2 on and read older images.
const CUDA: [&str; 7] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-cuobjdump==13.2.51",
    "nvidia-cuda-nvdisasm==13.2.51",
];

/// nvcc: from `JFA_NVCC`, or installed in the build folder if it is not there yet.
///
/// # Errors
/// If a package cannot be installed.
pub fn nvcc(context: &Context) -> Result<PathBuf> {
    match std::env::var_os("JFA_NVCC").filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => Ok(site_packages(&context.python_tool("cuda", &CUDA)?)?.join("nvidia/cu13/bin/nvcc")),
    }
}

/// Installs the compiler in `tools/cuda` of the build folder and prints where it is.
///
/// # Errors
/// If a package cannot be installed, or nvcc does not start.
pub fn run(context: &Context) -> Result {
    let nvcc = nvcc(context)?;
    let version = context.output(context.command(&nvcc).arg("--version"))?;
    println!("{}", version.lines().find(|line| line.contains("release")).unwrap_or_default());
    println!("{}", nvcc.display());
    Ok(())
}
