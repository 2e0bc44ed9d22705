//! Gives the shared library its soname, and compiles the CUDA kernels to images that are embedded in it.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Result<T> = std::result::Result<T, String>;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    soname();
    if let Err(error) = kernels() {
        println!("cargo::error={}", error.trim_end().replace('\n', "\ncargo::error="));
    }
}

/// One soname per minor version before 1.0, one per major version after.
fn soname() {
    let soname = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libjfa.so.{soname}");
}

/// Kernels that may serialise their tensor-core instructions for want of registers: three warpgroups with 160 each run
/// side by side, so that the tensor cores stay busy all the same.
const SERIALISED: [&str; 2] = ["jfa_sm90_backward_bf16_q128_d128", "jfa_sm90_backward_fp16_q128_d128"];

/// What kernels are compiled for by default: Hopper, and the family of data-centre Blackwells (10.0 and 10.3).
const ARCHS: [&str; 2] = ["90a", "100f"];

/// Element types, each with units of its own.
const DTYPES: [&str; 2] = ["bf16", "fp16"];

/// Kernels with optimisations that can be left out.
const SWITCHED: [&str; 2] = ["sm100_forward", "sm100_backward"];

/// One translation unit, compiled to one image.
struct Unit {
    source: PathBuf,
    /// Name of the image: "plan", "sm90_forward_bf16_d128" and so on.
    name: String,
    /// The element type that it is compiled for, if it depends on one.
    dtype: Option<&'static str>,
    /// Architectures, "90a" and the like.
    archs: Vec<String>,
}

/// Compiles every unit, as many at a time as cargo grants, and writes `images.rs`: the table of all images, empty
/// without the feature `cuda`.
fn kernels() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let images = out.join("images.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        println!("cargo::rustc-env=JFA_BUILT_ARCHS=");
        return fs::write(images, "&[]").map_err(|e| format!("images.rs: {e}"));
    }
    let nvcc = find_nvcc(&out)?;
    println!("cargo::rerun-if-env-changed=JFA_CUDA_ARCHS");
    println!("cargo::rerun-if-env-changed=JFA_LINEINFO");
    println!("cargo::rerun-if-env-changed=JFA_SWITCHES");
    let archs = env::var("JFA_CUDA_ARCHS").ok().filter(|list| !list.is_empty()).unwrap_or_else(|| ARCHS.join(" "));
    let archs: Vec<String> = archs.split([',', ';', ' ']).filter(|a| !a.is_empty()).map(String::from).collect();
    if let Some(unknown) = archs.iter().find(|arch| !ARCHS.contains(&arch.as_str()) && *arch != "100a") {
        return Err(format!("JFA_CUDA_ARCHS names {unknown}, but there are kernels for 90a, 100f and 100a only"));
    }
    if archs.iter().filter(|arch| arch.starts_with("100")).count() > 1 {
        return Err(
            "JFA_CUDA_ARCHS names both 100a and 100f, but what is built for 100f runs on all that 100a does".into()
        );
    }
    let is_known = |switch: &String| SWITCHED.iter().any(|kernels| member(switch, kernels).is_some());
    if let Some(unknown) = switches().iter().find(|switch| !is_known(switch)) {
        return Err(format!("JFA_SWITCHES names {unknown}, but there are switches of {SWITCHED:?} only"));
    }
    println!("cargo::rustc-env=JFA_BUILT_ARCHS={}", archs.join(" "));
    let units = units(&archs)?;
    let jobs: usize = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, units.len()) {
            scope.spawn(|| {
                while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = compile(&nvcc, unit, &out)
                        && let Ok(mut errors) = errors.lock()
                    {
                        errors.push(error);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().map_err(|e| e.to_string())?;
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let mut dependencies = BTreeSet::new();
    let mut table = String::from("&[\n");
    for unit in &units {
        dependencies.extend(read_dependencies(&out.join(&unit.name).with_extension("d"))?);
        let image = out.join(&unit.name).with_extension("fatbin");
        writeln!(table, "    ({:?}, &Aligned(*include_bytes!({image:?})).0),", unit.name).map_err(|e| e.to_string())?;
    }
    table.push_str("]\n");
    for file in dependencies {
        println!("cargo::rerun-if-changed={file}");
    }
    fs::write(images, table).map_err(|e| format!("images.rs: {e}"))
}

/// The planner, the merge and `kernels/backward/instantiations/DTYPE.cu` run on every architecture;
/// `kernels/smNN/PHASE/instantiations/VARIANT.cu` on one.
fn units(archs: &[String]) -> Result<Vec<Unit>> {
    let mut units: Vec<Unit> = ["plan", "combine"]
        .map(|name| Unit {
            source: format!("kernels/{name}/{name}.cu").into(),
            name: name.into(),
            dtype: None,
            archs: archs.to_vec(),
        })
        .into();
    let mut phases = vec![("backward".to_owned(), PathBuf::from("kernels/backward"), archs.to_vec())];
    for arch in archs {
        let generation = format!("sm{}", arch.trim_end_matches(['a', 'f']));
        for phase in sorted(&Path::new("kernels").join(&generation))? {
            phases.push((format!("{generation}_{}", stem(&phase)), phase, vec![arch.clone()]));
        }
    }
    for (phase, folder, archs) in phases {
        println!("cargo::rerun-if-changed={}", folder.display());
        let single = folder.join("instantiations.cu");
        let sources = if single.exists() { vec![single] } else { sorted(&folder.join("instantiations"))? };
        for (source, dtype) in sources.iter().flat_map(|source| DTYPES.map(|dtype| (source, dtype))) {
            let variant = match stem(source) {
                only if only == "instantiations" => String::new(),
                variant => format!("_{variant}"),
            };
            let name = format!("{phase}_{dtype}{variant}");
            units.push(Unit { source: source.clone(), name, dtype: Some(dtype), archs: archs.clone() });
        }
    }
    // The longest first, so that the last ones are short.
    units.sort_by_key(|unit| unit.name == "plan" || unit.name == "combine");
    Ok(units)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    Ok(paths)
}

/// The switches that `JFA_SWITCHES` names.
fn switches() -> Vec<String> {
    env::var("JFA_SWITCHES").unwrap_or_default().split_whitespace().map(String::from).collect()
}

/// The member that a switch of these kernels sets: `peel=0` of `sm100_forward_peel=0`.
fn member<'a>(switch: &'a str, kernels: &str) -> Option<&'a str> {
    switch.strip_prefix(kernels)?.strip_prefix('_')
}

/// What sets the switches of a unit's kernels: `sm100_forward_peel=0 sm100_forward_slices=1` becomes
/// `-DJFA_SM100_FORWARD_SWITCHES=.peel=0\,.slices=1`, where nvcc would take a comma for the end of the definition.
fn definition(unit: &str) -> Option<String> {
    let kernels = SWITCHED.into_iter().find(|kernels| unit.starts_with(kernels))?;
    let switches = switches();
    let members: Vec<_> =
        switches.iter().filter_map(|switch| member(switch, kernels)).map(|m| format!(".{m}")).collect();
    let definition = format!("-DJFA_{}_SWITCHES={}", kernels.to_uppercase(), members.join("\\,"));
    (!members.is_empty()).then_some(definition)
}

/// Compiles one unit to machine code and PTX of the same target. A kernel that spills, uses local memory or has its
/// tensor-core instructions serialised is an error: it is many times slower than it looks.
fn compile(nvcc: &Path, unit: &Unit, out: &Path) -> Result<()> {
    let base = out.join(&unit.name);
    let mut command = Command::new(nvcc);
    command.args(["-std=c++20", "-O3", "-fatbin", "-Ikernels", "-Xptxas", "-v", "-Werror", "all-warnings"]);
    command.args(["-MD", "-MF"]).arg(base.with_extension("d"));
    if env::var_os("JFA_LINEINFO").is_some_and(|value| !value.is_empty() && value != "0") {
        command.arg("-lineinfo");
    }
    command.args(definition(&unit.name));
    command.args(unit.dtype.map(|dtype| format!("-DJFA_DTYPE={dtype}")));
    for arch in &unit.archs {
        command.args(["-gencode", &format!("arch=compute_{arch},code=[sm_{arch},compute_{arch}]")]);
    }
    command.arg("-o").arg(base.with_extension("fatbin")).arg(&unit.source);
    let arguments = format!("{command:?}");
    if is_current(&base, &arguments, nvcc) {
        return Ok(());
    }
    let output = command.output().map_err(|e| format!("cannot start {}: {e}", nvcc.display()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let source = unit.source.display();
    if !output.status.success() {
        return Err(format!("{} cannot compile {source}:\n{log}", nvcc.display()));
    }
    let allowed = |line: &str| SERIALISED.iter().any(|kernel| line.contains("(C7512)") && line.contains(kernel));
    if let Some(line) = log.lines().find(|line| line.contains("(C75") && !allowed(line)) {
        return Err(format!("{source}: {line}"));
    }
    let frames = log.lines().filter(|line| line.contains("bytes stack frame"));
    match frames.into_iter().find(|line| !line.trim_start().starts_with("0 bytes stack frame, 0 bytes spill stores")) {
        Some(line) => Err(format!("{source}: a kernel uses local memory:{line}")),
        None => fs::write(base.with_extension("done"), arguments).map_err(|e| e.to_string()),
    }
}

/// Whether a unit was compiled and checked with these arguments after the last change of what it is made of and by.
fn is_current(base: &Path, arguments: &str, nvcc: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let Ok(sources) = read_dependencies(&base.with_extension("d")) else { return false };
    let made_of = sources.iter().map(Path::new).chain([Path::new("build.rs"), nvcc]).map(modified);
    let Some(last) = made_of.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max()) else {
        return false;
    };
    let done = base.with_extension("done");
    fs::read_to_string(&done).is_ok_and(|text| text == arguments)
        && base.with_extension("fatbin").is_file()
        && modified(&done).is_some_and(|time| time > last)
}

/// The files of this repository that a make rule names.
fn read_dependencies(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let files = text.split_once(": ").map_or("", |(_, files)| files).replace("\\\n", " ");
    Ok(files.split_whitespace().filter(|file| file.starts_with("kernels/")).map(String::from).collect())
}

/// nvcc from `JFA_NVCC`, `NVCC`, `CUDA_HOME`, `CUDA_PATH`, the path, its usual folder, `cargo xtask toolchain` or the
/// packages of the active Python.
fn find_nvcc(out: &Path) -> Result<PathBuf> {
    let mut candidates = Vec::new();
    for (variable, suffix) in [("JFA_NVCC", ""), ("NVCC", ""), ("CUDA_HOME", "bin/nvcc"), ("CUDA_PATH", "bin/nvcc")] {
        println!("cargo::rerun-if-env-changed={variable}");
        if let Some(value) = env::var_os(variable).filter(|value| !value.is_empty()) {
            candidates.push(if suffix.is_empty() { value.into() } else { Path::new(&value).join(suffix) });
        }
    }
    let explicit = candidates.first().cloned();
    candidates.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|folder| folder.join("nvcc")));
    candidates.push("/usr/local/cuda/bin/nvcc".into());
    let targets = out.ancestors().nth(4).into_iter().chain([Path::new("target")]);
    let environments = targets.map(|target| target.join("tools/cuda"));
    let environments = environments.chain(env::var_os("VIRTUAL_ENV").map(PathBuf::from));
    for environment in environments {
        for python in sorted(&environment.join("lib")).unwrap_or_default() {
            candidates.push(python.join("site-packages/nvidia/cu13/bin/nvcc"));
        }
    }
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let named = explicit.map_or(String::new(), |path| format!(" ({} is no file)", path.display()));
        format!(
            "no nvcc found{named}. Either install one under target/ with `cargo xtask toolchain` (or set JFA_NVCC, or \
             CUDA_HOME), or build without CUDA: `--no-default-features`"
        )
    })
}
