//! The library and its CMake package.

use std::fs;
use std::path::{Path, PathBuf};

use crate::context::{Context, Result};

/// The first two numbers of this workspace's version, which make the soname.
const SONAME: &str = concat!("libjfa.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

impl Context {
    /// Builds the release library and returns its path. A link of the name of its soname lies beside it, so that
    /// programs linked with it start.
    ///
    /// # Errors
    /// If the build fails.
    pub fn build_release(&self) -> Result<PathBuf> {
        self.run(self.cargo().args(["build", "--quiet", "--release", "--lib", "--package", "jfa"]))?;
        let library = self.target.join("release/libjfa.so");
        let link = library.with_file_name(SONAME);
        if link.read_link().is_err() {
            std::os::unix::fs::symlink("libjfa.so", link)?;
        }
        Ok(library)
    }

    /// Builds the CMake package and installs it in `prefix`, which is emptied first.
    ///
    /// # Errors
    /// If CMake cannot be had, or a step fails.
    pub fn install(&self, prefix: &Path) -> Result {
        let (cmake, build) = (self.cmake()?, self.target.join("cmake/package"));
        self.configure(&self.root, &build, &["-DCMAKE_BUILD_TYPE=Release"])?;
        self.run(self.command(&cmake).arg("--build").arg(&build))?;
        if prefix.exists() {
            fs::remove_dir_all(prefix)?;
        }
        self.run(self.command(&cmake).arg("--install").arg(&build).arg("--prefix").arg(prefix))
    }

    /// Configures a CMake project, with Ninja where there is one.
    ///
    /// # Errors
    /// If CMake cannot be had, or refuses the project.
    pub fn configure(&self, source: &Path, build: &Path, options: &[&str]) -> Result {
        let mut command = self.command(self.cmake()?);
        command.arg("-S").arg(source).arg("-B").arg(build).args(options);
        // An existing build folder keeps its generator: CMake refuses another.
        if let Some(ninja) = self.ninja().filter(|_| !build.join("CMakeCache.txt").exists()) {
            command.arg("-GNinja").arg(format!("-DCMAKE_MAKE_PROGRAM={}", ninja.display()));
        }
        self.run(&mut command)
    }
}
