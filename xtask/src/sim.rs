//! Runs the CUDA kernels of the real library without a GPU, on cudasim.

mod soak;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::context::{Context, Result};
use crate::toolchain;

/// The compiler whose kernels hardware is known to run.
const TRITON: [&str; 2] = ["triton==3.6.0", "setuptools"];

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--first N] [--device NAME] [--sms N] [-- TEST ...]
       cargo xtask sim soak [the same options]
       cargo xtask sim mutate KERNEL [the same options] -- TEST ...
       cargo xtask sim vectors [the same options]
       cargo xtask sim switches [the same options] -- TEST ...
       cargo xtask sim speed
       cargo xtask sim triton
  --seeds N      interleavings to try (default 3)
  --first N      the first of them (default 1)
  --device NAME  the GPU that is modelled: h200 (default), b200 or b300
  --sms N        its multiprocessors (default 4, for soak 2: persistent kernels then take several turns)
  TEST           part of the names of conformance cases (default: all)
  soak           small cases that run every kernel once in each interleaving
  mutate         leaves out one ordering instruction of KERNEL after the other, and lists those that nobody misses
  vectors        O and LSE of small forwards, which must be those of an H200 to the bit
  switches       counters of the Blackwell forward with one optimisation after the other left out (default: d128)
  speed          thread-instructions a second on elementwise code
  triton         kernels that Triton compiles";

/// The variable that chooses between pairs of CTAs and single ones.
pub const PAIRS: &str = "JFA_SM100_PAIRS";

/// What an H200 computed.
const VECTORS: &str = "conformance/vectors/h200.bin";

/// Optimisations of the Blackwell forward left out, one each; see `kernels/sm100/forward/config.h`.
const SWITCHES: [&str; 8] = [
    "",
    "sm100_forward_exp2_fma=0",
    "sm100_forward_rescale=0",
    "sm100_forward_peel=0",
    "sm100_forward_slices=1",
    "sm100_forward_split_keys=0",
    "sm100_forward_static_percent=0",
    "sm100_forward_static_percent=100",
];

/// What the names of a device's own kernels begin with.
fn own_kernels(device: &str) -> &'static str {
    if device == "h200" { "jfa_sm90_" } else { "jfa_sm100_" }
}

/// What one run of the table takes.
pub struct Tables {
    library: PathBuf,
    driver: PathBuf,
    conformance: PathBuf,
    /// Names of all kernels of the library.
    kernels: BTreeSet<String>,
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
        let kernels = kernels(&fs::read(&library)?);
        Ok(Tables { library, driver, conformance: folder.join("jfa-conformance"), kernels })
    }

    /// The kernels that run on a device.
    fn of_device(&self, device: &str) -> BTreeSet<String> {
        let runs = |name: &&String| !name.starts_with("jfa_sm") || name.starts_with(own_kernels(device));
        self.kernels.iter().filter(runs).cloned().collect()
    }

    /// The command that runs the cases whose names contain `filter`.
    pub fn command(&self, context: &Context, shape: Shape, filter: &str) -> Command {
        let mut command = context.command(&self.conformance);
        command.args(["--device", "cuda", "--filter", filter, "--library"]).arg(&self.library);
        command.args(["--random", &shape.random.to_string()]);
        command.env("LD_LIBRARY_PATH", &self.driver).env("CUDASIM_SEED", shape.seed.to_string());
        command.env("CUDASIM_DEVICE", shape.device).env("CUDASIM_SMS", shape.multiprocessors.to_string());
        // The Blackwell backward has pairs of CTAs and single ones: every other interleaving tries pairs.
        if std::env::var_os(PAIRS).is_none() {
            command.env(PAIRS, (shape.seed % 2).to_string());
        }
        command
    }

    /// The command that compares small forwards with those of an H200.
    pub fn vectors(&self, context: &Context, shape: Shape) -> Command {
        let mut command = self.command(context, shape, "");
        command.arg("--vectors").arg(context.root.join(VECTORS));
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

/// Options and tests of a command line.
struct Options<'a> {
    seeds: std::ops::Range<u64>,
    device: &'a str,
    multiprocessors: u32,
    tests: Vec<&'a str>,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str], mut multiprocessors: u32) -> Result<Self> {
        let (mut seeds, mut first, mut device) = (3u64, 1u64, "h200");
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
                "--sms" => multiprocessors = value.parse().map_err(|_| USAGE)?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(Options { seeds: first..first + seeds, device, multiprocessors, tests: words.collect() })
    }

    fn shape(&self, seed: u64, random: u32) -> Shape<'a> {
        Shape { seed, device: self.device, multiprocessors: self.multiprocessors, random }
    }
}

/// `cargo xtask sim`.
///
/// # Errors
/// At the first run that fails, with its seed.
pub fn run(context: &Context, words: &[&str]) -> Result {
    match words {
        ["triton"] => context.run(&mut triton(context)?),
        ["speed"] => {
            context.run(context.cargo().args(["bench", "--quiet", "--package", "cudasim", "--bench", "speed"]))
        }
        ["mutate", kernel, rest @ ..] => mutate(context, kernel, &Options::parse(rest, 4)?),
        ["vectors", rest @ ..] => {
            let (options, tables) = (Options::parse(rest, 4)?, Tables::build(context)?);
            for seed in options.seeds.clone() {
                context.run(&mut tables.vectors(context, options.shape(seed, 0)))?;
            }
            Ok(())
        }
        ["switches", rest @ ..] => {
            let options = Options::parse(rest, 4)?;
            let tests = if options.tests.is_empty() { vec!["numeric/packed-d128-h4.1-full"] } else { options.tests };
            switches(context, &Options { device: "b200", tests, ..options })
        }
        ["soak", rest @ ..] => soak::run(context, &Options::parse(rest, 2)?),
        _ => {
            let options = Options::parse(words, 4)?;
            let tests = if options.tests.is_empty() { vec![""] } else { options.tests };
            every_seed(context, &Options { tests, ..options }, 60)
        }
    }
}

/// Every seed on every test.
fn every_seed(context: &Context, options: &Options, random: u32) -> Result {
    let tables = Tables::build(context)?;
    for seed in options.seeds.clone() {
        println!("seed {seed}");
        for test in &options.tests {
            let mut command = tables.command(context, options.shape(seed, random), test);
            context.run(&mut command).map_err(|error| format!("seed {seed}: {error}"))?;
        }
    }
    println!("{} seeds passed", options.seeds.end - options.seeds.start);
    Ok(())
}

/// The counters of the Blackwell forward on every test with each of `SWITCHES`; leaves the usual library behind.
fn switches(context: &Context, options: &Options) -> Result {
    let tables = Tables::build(context)?;
    let build = |switch: &str| {
        let mut cargo = context.cargo();
        cargo.args(["build", "--quiet", "--release", "--lib", "--package", "jfa"]).env("JFA_SWITCHES", switch);
        context.run(&mut cargo)
    };
    for switch in SWITCHES {
        build(switch)?;
        for (test, seed) in options.tests.iter().flat_map(|test| options.seeds.clone().map(move |seed| (test, seed))) {
            let mut command = tables.command(context, options.shape(seed, 0), test);
            let output = command.arg("--forward-only").env("CUDASIM_REPORT", "1").output()?;
            let text = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                return Err(format!("{switch}, seed {seed}, {test}: failed\n{text}").into());
            }
            println!("\n== {test}, seed {seed}, {}", if switch.is_empty() { "everything on" } else { switch });
            // A kernel's table ends where the next line is not indented.
            let mut wanted = false;
            for line in text.lines() {
                wanted = if line.starts_with("  ") { wanted } else { line.starts_with("cudasim: jfa_sm100_forward") };
                if wanted {
                    println!("{line}");
                }
            }
        }
    }
    build("")
}

/// Names of the kernels in a library, from the section names of their machine code.
fn kernels(library: &[u8]) -> BTreeSet<String> {
    const SECTION: &[u8] = b".text.jfa_";
    let starts = library.windows(SECTION.len()).enumerate().filter(|(_, bytes)| *bytes == SECTION);
    let name = |at: usize| {
        let rest = &library[at + SECTION.len() - b"jfa_".len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len())]).into_owned()
    };
    starts.map(|(at, _)| name(at)).collect()
}

/// Leaves out each ordering instruction of a kernel in turn.
fn mutate(context: &Context, kernel: &str, options: &Options) -> Result {
    if options.tests.is_empty() {
        return Err(USAGE.into());
    }
    let tables = Tables::build(context)?;
    let (mut reported, mut wrong, mut missed, mut unreached) = (0, 0, 0, 0);
    for number in 0.. {
        let (mut line, mut fault, mut passed, mut reached) = (None, None, true, false);
        for (test, seed) in options.tests.iter().flat_map(|test| options.seeds.clone().map(move |seed| (test, seed))) {
            let mut command = tables.command(context, options.shape(seed, 0), test);
            let output = command.env("CUDASIM_OMIT", format!("{kernel}:{number}")).output()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let find =
                |part: &str| text.lines().find(|l| l.starts_with("cudasim: ") && l.contains(part)).map(String::from);
            line = line.or(find(" without PTX line "));
            fault = find("cudasim: seed ");
            reached |= find(" ran without an instruction").is_some();
            passed &= output.status.success();
            if fault.is_some() || find(" ordering instructions").is_some() {
                break;
            }
        }
        let Some(line) = line else { break };
        let (count, effect) = match &fault {
            Some(fault) => (&mut reported, fault.as_str()),
            None if !passed => (&mut wrong, "wrong results only"),
            None if reached => (&mut missed, "NOTHING"),
            None => (&mut unreached, "not reached"),
        };
        *count += 1;
        println!("{line}\n    {effect}");
    }
    println!("{reported} reported, {wrong} with wrong results only, {missed} without effect, {unreached} not reached");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_by_their_sections() {
        let image = b"\0.text.jfa_plan\0.rel.text.jfa_sm90_forward_bf16_d64\0.text.other\0.text.jfa_plan\0";
        assert_eq!(kernels(image).into_iter().collect::<Vec<_>>(), ["jfa_plan", "jfa_sm90_forward_bf16_d64"]);
    }

    #[test]
    fn options_and_tests() {
        let options = Options::parse(&["--seeds", "5", "--first", "7", "--", "masks/"], 4).unwrap();
        assert_eq!((options.seeds, options.multiprocessors, &options.tests[..]), (7..12, 4, &["masks/"][..]));
        assert!(Options::parse(&["--seeds"], 4).is_err() && Options::parse(&["--what", "1"], 4).is_err());
    }
}
