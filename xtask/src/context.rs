//! What every command shares: where the repository and its build folder are, and how programs are run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Result of a command; the error is a sentence for the person at the terminal.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Where things are.
pub struct Context {
    /// The repository.
    pub root: PathBuf,
    /// The build folder: `CARGO_TARGET_DIR`, or `target` in the repository. Absolute.
    pub target: PathBuf,
}

impl Context {
    /// Finds the repository and its build folder.
    pub fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?.to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()) {
            Some(folder) => std::env::current_dir()?.join(folder),
            None => root.join("target"),
        };
        Ok(Context { root, target })
    }

    /// A program to be started in the repository with its build folder set, so that nothing is built twice.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The cargo that runs this program.
    pub fn cargo(&self) -> Command {
        self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Runs a command with its output shown.
    ///
    /// # Errors
    /// If it cannot be started or fails; the error has the whole command line.
    pub fn run(&self, command: &mut Command) -> Result {
        println!("$ {}", line(command));
        let status = command.status().map_err(|e| format!("cannot start `{}`: {e}", line(command)))?;
        if status.success() { Ok(()) } else { Err(failure(command, status)) }
    }

    /// Runs a command with its standard output shown line by line, and returns that text with what became of it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run_and_read(&self, command: &mut Command) -> Result<(String, Result)> {
        println!("$ {}", line(command));
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|e| format!("cannot start `{}`: {e}", line(command)))?;
        let mut text = String::new();
        let mut reader = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            let part = String::from_utf8_lossy(&bytes);
            print!("{part}");
            text.push_str(&part);
            bytes.clear();
        }
        let status = child.wait()?;
        Ok((text, if status.success() { Ok(()) } else { Err(failure(command, status)) }))
    }

    /// Runs a command silently and returns its standard output.
    ///
    /// # Errors
    /// If it cannot be started or fails; the error has its standard error.
    pub fn output(&self, command: &mut Command) -> Result<String> {
        let output = command.output().map_err(|e| format!("cannot start `{}`: {e}", line(command)))?;
        if !output.status.success() {
            return Err(
                format!("{}: {}", failure(command, output.status), String::from_utf8_lossy(&output.stderr)).into()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Makes an empty folder, removing what was there.
pub fn fresh_folder(path: &Path) -> Result {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    Ok(fs::create_dir_all(path)?)
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quote = |word: &std::ffi::OsStr| match word.to_string_lossy() {
        text if text.contains(' ') => format!("'{text}'"),
        text => text.into_owned(),
    };
    words.map(quote).collect::<Vec<_>>().join(" ")
}

fn failure(command: &Command, status: std::process::ExitStatus) -> Box<dyn std::error::Error> {
    format!("`{}` failed ({status})", line(command)).into()
}
