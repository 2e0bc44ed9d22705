//! Programs from PyPI, pinned, in virtual environments under the build folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::{Context, Result, fresh_folder};

/// CMake and its fastest generator, for machines that have none.
const CMAKE: [&str; 2] = ["cmake==4.4.5", "ninja==1.13.2"];
/// The formatter's version decides what is well formatted, so a machine's own one does not do.
const CLANG_FORMAT: [&str; 1] = ["clang-format==23.1.5"];
/// What CMakeLists.txt asks for.
const MINIMUM_CMAKE: (u32, u32) = (3, 24);

impl Context {
    /// A virtual environment `tools/<name>` in the build folder that holds `requirements`; its programs are in `bin`.
    ///
    /// It is made anew only when the requirements change.
    ///
    /// # Errors
    /// If Python lacks venv, or the packages cannot be installed.
    pub fn python_tool(&self, name: &str, requirements: &[&str]) -> Result<PathBuf> {
        let folder = self.target.join("tools").join(name);
        let stamp = folder.join("requirements.txt");
        let wanted = requirements.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
            return Ok(folder);
        }
        println!("Installing {} in {}", requirements.join(" "), folder.display());
        fresh_folder(&folder)?;
        self.output(self.command("python3").args(["-m", "venv"]).arg(&folder))
            .map_err(|e| format!("{e}\nPython 3 with its venv module is needed (Debian: apt install python3-venv)"))?;
        let mut pip = self.command(folder.join("bin/python"));
        self.output(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(requirements))?;
        // Written last, so that an interrupted installation is repeated.
        fs::write(stamp, wanted)?;
        Ok(folder)
    }

    /// CMake of at least version 3.24 that has a build program: the machine's, or one from PyPI.
    ///
    /// # Errors
    /// If there is none and it cannot be installed.
    pub fn cmake(&self) -> Result<PathBuf> {
        let version = |program| self.output(Command::new(program).arg("--version")).ok();
        let recent = version("cmake").is_some_and(|text| parse_version(&text) >= Some(MINIMUM_CMAKE));
        if recent && (version("ninja").is_some() || version("make").is_some()) {
            return Ok("cmake".into());
        }
        Ok(self.python_tool("cmake", &CMAKE)?.join("bin/cmake"))
    }

    /// CTest, from beside [`Self::cmake`].
    pub fn ctest(&self) -> Result<PathBuf> {
        Ok(self.cmake()?.with_file_name("ctest"))
    }

    /// Ninja: the machine's, or the one that came with our CMake.
    pub fn ninja(&self) -> Option<PathBuf> {
        let bundled = self.target.join("tools/cmake/bin/ninja");
        let installed = || self.output(Command::new("ninja").arg("--version")).is_ok();
        if bundled.exists() { Some(bundled) } else { installed().then(|| "ninja".into()) }
    }

    /// The pinned clang-format.
    ///
    /// # Errors
    /// If it cannot be installed.
    pub fn clang_format(&self) -> Result<PathBuf> {
        Ok(self.python_tool("clang-format", &CLANG_FORMAT)?.join("bin/clang-format"))
    }
}

/// The folder where a virtual environment keeps its packages.
pub fn site_packages(venv: &Path) -> Result<PathBuf> {
    let versions = fs::read_dir(venv.join("lib"))?.filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
    Ok(versions.into_iter().find(|path| path.is_dir()).ok_or("the virtual environment has no site-packages")?)
}

/// Major and minor of the first dotted number in a program's version text.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = parse_version("cmake version 3.25.1\n\nCMake suite").expect("a version");
        assert_eq!(version, (3, 25));
        assert!(parse_version("cmake version 3.9.0") < Some((3, 24)));
        assert_eq!(parse_version("no digits"), None);
    }
}
