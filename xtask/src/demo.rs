//! The demo: a real jagged batch through the C ABI of the installed package, and a picture of its schedule.

mod schedule;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};

use crate::context::{Context, Result};
use crate::toolchain;
use schedule::Batch;

/// Keys of each sequence: see `examples/README.md`.
const LENGTHS: &str = "examples/movielens100k_history_lengths.txt";
/// Workers of the picture: the multiprocessors of an H200.
const WORKERS: u32 = 132;
/// What the README's program prints: equal keys make O the mean of the values, and there is none without keys.
const QUICKSTART_OUTPUT: &str = "sequence 0: O = 1.00\nsequence 1: O = 0.00\nsequence 2: O = 5.00\n";

/// Builds the package and both example programs, runs them, and draws the schedule. `options` go to the program.
///
/// # Errors
/// If a tool is missing, a build fails, or a program fails.
pub fn run(context: &Context, options: &[&str]) -> Result {
    let lengths = context.root.join(LENGTHS);
    let batch = read_batch(&lengths, options)?;
    let (output, prefix) = (context.target.join("demo"), context.target.join("demo/package"));
    fs::create_dir_all(&output)?;
    toolchain::run(context)?;
    context.install(&prefix)?;
    quickstart(context, &prefix)?;
    let build = build_example(context, "demo", &prefix)?;
    println!();
    context.run(context.command(build.join("jfa_demo")).arg("--lengths").arg(&lengths).args(options))?;
    let picture = output.join("schedule.svg");
    fs::write(&picture, svg::render(&batch, WORKERS))?;
    println!("\n{}", batch.summary());
    println!("The load of {WORKERS} workers, drawn: {}", picture.display());
    Ok(())
}

/// Builds the program of the README against the package in `prefix`, runs it and checks what it prints.
///
/// # Errors
/// If the build fails, the program fails, or its output is wrong.
pub fn quickstart(context: &Context, prefix: &Path) -> Result {
    let build = build_example(context, "quickstart", prefix)?;
    let (text, result) = context.run_and_read(&mut context.command(build.join("quickstart")))?;
    result?;
    if text == QUICKSTART_OUTPUT { Ok(()) } else { Err(format!("quickstart should print\n{QUICKSTART_OUTPUT}").into()) }
}

/// Builds `examples/<name>` with find_package(jfa) and returns its build folder.
fn build_example(context: &Context, name: &str, prefix: &Path) -> Result<PathBuf> {
    let build = context.target.join("cmake").join(name);
    let options = ["-DCMAKE_BUILD_TYPE=Release".into(), format!("-DCMAKE_PREFIX_PATH={}", prefix.display())];
    // A package found by an earlier run stays in the cache, even when it has moved since.
    let options = [&options[0], &options[1], "-Ujfa_DIR"];
    context.configure(&context.root.join("examples").join(name), &build, &options)?;
    context.run(context.command(context.cmake()?).arg("--build").arg(&build).args(["--parallel", "2"]))?;
    Ok(build)
}

/// The batch of the picture: the lengths, and the program's options that change its shape.
fn read_batch(lengths: &Path, options: &[&str]) -> Result<Batch> {
    let text = fs::read_to_string(lengths).map_err(|e| format!("{}: {e}", lengths.display()))?;
    let lengths = text.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<i64>, _>>()?;
    let mut batch = Batch { lengths, queries: 64, heads: 4 };
    for pair in options.windows(2) {
        match pair {
            ["--queries", value] => batch.queries = value.parse().map_err(|e| format!("--queries {value}: {e}"))?,
            ["--heads", value] => batch.heads = value.parse().map_err(|e| format!("--heads {value}: {e}"))?,
            _ => {}
        }
    }
    if batch.queries < 1 || batch.heads < 1 {
        return Err("--queries and --heads must be 1 or more".into());
    }
    Ok(batch)
}
