//! Everything that is checked before a change goes in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::context::{Context, Result, fresh_folder};
use crate::{demo, lines, races, sass, sim, toolchain, torch};

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

/// One part of the check.
type Step = (&'static str, fn(&Context) -> Result<Count>);

const STEPS: [Step; 15] = [
    ("CUDA compiler", compiler),
    ("rustfmt", rustfmt),
    ("clang-format", clang_format),
    ("line budget of the kernels", line_budget),
    ("clippy", clippy),
    ("rustdoc", rustdoc),
    ("unit and property tests", cargo_test),
    ("conformance on the CPU device", conformance),
    ("C and C++ tests of the installed package", ctests),
    ("machine code of the CUDA kernels", machine_code),
    ("CUDA kernels on cudasim", simulated),
    ("races that cudasim must report", races),
    ("Triton's kernels on cudasim", triton),
    ("PyTorch operators", torch_operators),
    ("trainer in C++", trainer),
];

/// Runs every step, also after a failed one, and closes with the line `N passed, N failed`.
///
/// # Errors
/// Names the steps that failed.
pub fn run(context: &Context) -> Result {
    let mut total = Count::default();
    let mut summary = Vec::new();
    let mut broken = Vec::new();
    for (number, (name, step)) in (1..).zip(STEPS) {
        println!("\n== {number}/{} {name} ==", STEPS.len());
        let start = Instant::now();
        let result = step(context);
        let seconds = start.elapsed().as_secs_f64();
        let word = match &result {
            Ok(count) if count.failed == 0 => "ok",
            _ => "FAILED",
        };
        if let Err(error) = &result {
            println!("error: {error}");
        }
        println!("-- {name}: {word} in {seconds:.1} s");
        // A step that broke before it could count still fails the run by one.
        let count = result.unwrap_or(Count { passed: 0, failed: 1 });
        total.passed += count.passed;
        total.failed += count.failed;
        if word != "ok" {
            broken.push(name);
        }
        summary.push(format!("{word:>6}  {seconds:7.1} s  {name}"));
    }
    println!("\n{}", summary.join("\n"));
    println!("\n{} passed, {} failed", total.passed, total.failed);
    if broken.is_empty() { Ok(()) } else { Err(format!("failed: {}", broken.join(", ")).into()) }
}

fn compiler(context: &Context) -> Result<Count> {
    toolchain::run(context)?;
    Ok(Count::default())
}

fn rustfmt(context: &Context) -> Result<Count> {
    context.run(context.cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Count::default())
}

fn clang_format(context: &Context) -> Result<Count> {
    let mut files = vec![context.root.join("include/jfa/jfa.hpp")];
    for folder in ["ctests", "examples", "kernels", "bindings"] {
        find_sources(&context.root.join(folder), &mut files)?;
    }
    println!("{} files", files.len());
    context.run(context.command(context.clang_format()?).args(["--dry-run", "--Werror"]).args(files))?;
    Ok(Count::default())
}

fn line_budget(context: &Context) -> Result<Count> {
    lines::check(context)?;
    Ok(Count { passed: 1, failed: 0 })
}

/// Adds the C, C++ and CUDA files below `folder`, in a fixed order.
pub fn find_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result {
    if !folder.is_dir() {
        return Ok(());
    }
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            find_sources(&path, files)?;
        } else if ["c", "h", "cpp", "hpp", "cu", "cuh"].contains(&extension.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}

/// In release, as every step that compiles: the kernels are then built once.
fn clippy(context: &Context) -> Result<Count> {
    let mut cargo = context.cargo();
    cargo.args(["clippy", "--quiet", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    context.run(&mut cargo)?;
    Ok(Count::default())
}

fn rustdoc(context: &Context) -> Result<Count> {
    let mut cargo = context.cargo();
    cargo.args(["doc", "--quiet", "--release", "--workspace", "--no-deps", "--document-private-items"]);
    context.run(cargo.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Count::default())
}

/// In release: the property tests and the references are slow without the optimiser, and the next steps need that
/// build anyway.
fn cargo_test(context: &Context) -> Result<Count> {
    let (text, result) =
        context.run_and_read(context.cargo().args(["test", "--workspace", "--release", "--no-fail-fast"]))?;
    finish(rust_count(&text), result)
}

fn conformance(context: &Context) -> Result<Count> {
    let library = context.build_release()?;
    let mut cargo = context.cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "jfa-conformance", "--", "--device", "cpu", "--library"]);
    let (text, result) = context.run_and_read(cargo.arg(library))?;
    finish(plain_count(&text), result)
}

fn ctests(context: &Context) -> Result<Count> {
    let (installed, moved) = (context.target.join("package"), context.target.join("package-moved"));
    context.install(&installed)?;
    // A package that only works where it was installed is the commonest fault of its kind.
    fresh_folder(&moved)?;
    fs::rename(&installed, &moved)?;
    let build = context.target.join("cmake/ctests");
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", moved.display());
    // A package that an earlier run found stays in the cache.
    context.configure(&context.root.join("ctests"), &build, &[&prefix, "-Ujfa_DIR", "-DCMAKE_BUILD_TYPE=Debug"])?;
    context.run(context.command(context.cmake()?).arg("--build").arg(&build).args(["--parallel", "2"]))?;
    let mut ctest = context.command(context.ctest()?);
    ctest.arg("--test-dir").arg(&build).args(["--output-on-failure", "--no-tests=error"]);
    ctest.args(["--timeout", "300", "--parallel", "2"]);
    let (text, result) = context.run_and_read(&mut ctest)?;
    let mut count = finish(ctest_count(&text), result)?;
    // The README's program, built as a newcomer would.
    match demo::quickstart(context, &moved) {
        Ok(()) => count.passed += 1,
        Err(error) => {
            println!("error: {error}");
            count.failed += 1;
        }
    }
    Ok(count)
}

fn machine_code(context: &Context) -> Result<Count> {
    let Some(summary) = sass::check(context)? else {
        println!("no CUDA kernels were built");
        return Ok(Count::default());
    };
    Ok(Count { passed: summary.passed, failed: summary.failed })
}

/// Forwards against those of an H200, and the tables with small shapes, each with another interleaving of the warps.
fn simulated(context: &Context) -> Result<Count> {
    let tables = sim::Tables::build(context)?;
    let mut sum = Count::default();
    let hopper = ["vectors", "rejections/", "masks/", "numeric/", "random/", "combine/", "rejections/", "masks/"];
    // Odd seeds, of which the first is 9, use pairs of CTAs.
    let blackwell = ["rejections/", "masks/", "numeric/every", "random/", "masks/", "lengths/", "numeric/group"];
    let runs = hopper.map(|filter| ("h200", filter)).into_iter().chain(blackwell.map(|filter| ("b200", filter)));
    let others = [
        ("b300", "numeric/masks-d128-full"), // runs what is built for the family of the B200
        ("h200", "soak/"),
        ("b200", "soak/"),
    ];
    for (seed, (device, filter)) in (1..).zip(runs.chain(others)) {
        let shape = sim::Shape { seed, device, multiprocessors: 4, random: 30 };
        let mut command = match filter {
            "vectors" => tables.vectors(context, shape),
            _ => tables.command(context, shape, filter),
        };
        // Some CTAs, or all but one, begin when others have ended; on Blackwell, others may take over what was theirs.
        let busy = match (device, filter) {
            ("h200", "soak/") | ("b200", "lengths/") => 1,
            ("b200", "soak/") => 3,
            _ => 0,
        };
        command.env("CUDASIM_BUSY", busy.to_string());
        let (text, result) = context.run_and_read(&mut command)?;
        let count = finish(plain_count(&text), result)?;
        sum = Count { passed: sum.passed + count.passed, failed: sum.failed + count.failed };
    }
    Ok(sum)
}

fn races(context: &Context) -> Result<Count> {
    Ok(Count { passed: races::check(context)?, failed: 0 })
}

fn triton(context: &Context) -> Result<Count> {
    let (text, result) = context.run_and_read(&mut sim::triton(context)?)?;
    finish(rust_count(&text), result)
}

fn torch_operators(context: &Context) -> Result<Count> {
    let (text, result) = torch::tests(context, &[])?;
    finish(pytest_count(&text), result)
}

fn trainer(context: &Context) -> Result<Count> {
    torch::train(context)?;
    Ok(Count { passed: 1, failed: 0 })
}

/// A run that failed without a failed test (a build error, a crash) counts as one failure.
fn finish(mut count: Count, result: Result) -> Result<Count> {
    if let Err(error) = result {
        println!("error: {error}");
        count.failed = count.failed.max(1);
    }
    Ok(count)
}

/// Adds up the lines `test result: ok. 3 passed; 1 failed; ...`.
fn rust_count(text: &str) -> Count {
    let results = text.lines().filter_map(|line| line.trim().strip_prefix("test result: "));
    results.fold(Count::default(), |sum, line| Count {
        passed: sum.passed + number_before(line, " passed").unwrap_or(0),
        failed: sum.failed + number_before(line, " failed").unwrap_or(0),
    })
}

/// The last line `3 passed, 1 failed`.
fn plain_count(text: &str) -> Count {
    let lines = text.lines().rev();
    let mut counts = lines.filter_map(|line| {
        Some(Count { passed: number_before(line, " passed")?, failed: number_before(line, " failed")? })
    });
    counts.next().unwrap_or_default()
}

/// CTest's line `92% tests passed, 1 tests failed out of 12`, which newer versions shorten to `100% tests passed out of
/// 12`. Tests that it skipped are in its total, but are none that passed.
fn ctest_count(text: &str) -> Count {
    let line = text.lines().rfind(|line| line.contains("% tests passed")).unwrap_or_default();
    let failed = number_before(line, " tests failed").or(number_before(line, " test failed")).unwrap_or(0);
    let total = line.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let skipped = text.lines().filter(|line| line.contains("***Skipped")).count() as u64;
    Count { passed: (total - failed).saturating_sub(skipped), failed }
}

/// pytest's last line, `1 failed, 64 passed, 59 skipped in 7.47s`, which leaves out what there was none of.
fn pytest_count(text: &str) -> Count {
    let line = text.lines().rfind(|line| line.contains(" in ")).unwrap_or_default();
    let number = |word| number_before(line, word).unwrap_or(0);
    Count { passed: number(" passed"), failed: number(" failed") + number(" error") }
}

/// The number that stands before `word`.
fn number_before(line: &str, word: &str) -> Option<u64> {
    line[..line.find(word)?].rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_test_programs_add_up() {
        let text =
            "test result: ok. 3 passed; 0 failed; 1 ignored\n\ntest result: FAILED. 2 passed; 4 failed; 0 ignored";
        assert_eq!(rust_count(text), Count { passed: 5, failed: 4 });
        assert_eq!(rust_count("error: could not compile"), Count::default());
    }

    #[test]
    fn the_last_plain_line_counts() {
        assert_eq!(plain_count("1 passed, 0 failed\nmore\n7 passed, 2 failed\n"), Count { passed: 7, failed: 2 });
        assert_eq!(plain_count("nothing"), Count::default());
    }

    #[test]
    fn skipped_programs_are_no_passed_ones() {
        let text = "3/3 Test #3: pkg_config ....***Skipped   0.00 sec\n\n67% tests passed, 1 tests failed out of 3";
        assert_eq!(ctest_count(text), Count { passed: 1, failed: 1 });
        assert_eq!(ctest_count("100% tests passed out of 18"), Count { passed: 18, failed: 0 });
    }

    #[test]
    fn pytest_counts_what_there_is() {
        let text = "FAILED tests/a.py::b in c\n1 failed, 64 passed, 59 skipped, 2 errors in 7.47s (0:01:02)\n";
        assert_eq!(pytest_count(text), Count { passed: 64, failed: 3 });
        assert_eq!(pytest_count("....\n4 passed in 0.10s\n"), Count { passed: 4, failed: 0 });
        assert_eq!(pytest_count("ImportError"), Count::default());
    }

    #[test]
    fn a_broken_run_is_a_failure() {
        assert_eq!(finish(Count::default(), Err("no".into())).expect("counted").failed, 1);
    }
}
