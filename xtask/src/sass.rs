//! Checks of the machine code of the kernels: what the compiler decides silently, and what costs most when it changes.

mod blackwell;
mod blackwell_backward;
mod listing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::{Context, Result};
use crate::tools::site_packages;
use listing::Kernel;

/// Passed and failed checks, one a kernel.
pub struct Summary {
    /// Kernels without a finding.
    pub passed: u64,
    /// Kernels with at least one.
    pub failed: u64,
}

/// Disassembles the forward kernels of the newest build and prints a table and what is wrong with them. `None` if no
/// build in the build folder has CUDA kernels.
///
/// # Errors
/// If there is no disassembler, or it fails.
pub fn check(context: &Context) -> Result<Option<Summary>> {
    let Some(images) = images(context)? else { return Ok(None) };
    println!("{:<36} {:>9}  exponentials before/after the last wait: steady | tile boundary", "kernel", "registers");
    let mut kernels = Vec::new();
    for image in &images {
        let text = context.output(cuobjdump(context)?.arg("--dump-sass").arg(image))?;
        kernels.extend(Kernel::parse(&text));
    }
    let mut summary = Summary { passed: 0, failed: 0 };
    let mut findings = Vec::new();
    for kernel in &kernels {
        let found = if kernel.name.starts_with("jfa_sm90_forward_") {
            println!("{}", row(kernel));
            Expected::of(&kernel.name).map(|expected| expected.check(kernel))
        } else if kernel.name.starts_with("jfa_sm100_forward_") {
            println!("{:<36} {:>9}", kernel.name, kernel.registers());
            blackwell::check(kernel)
        } else if kernel.name.starts_with("jfa_sm100_backward_") {
            println!("{:<36} {:>9}", kernel.name, kernel.registers());
            blackwell_backward::check(kernel)
        } else {
            continue;
        };
        let wrong = found.unwrap_or_else(|| vec!["has an unknown name".into()]);
        if wrong.is_empty() {
            summary.passed += 1
        } else {
            summary.failed += 1
        }
        findings.extend(wrong.into_iter().map(|finding| format!("error: {} {finding}", kernel.name)));
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    if summary.passed + summary.failed == 0 {
        return Err("the build holds no forward kernel".into());
    }
    Ok(Some(summary))
}

/// Runs [`check`] as a command of its own.
///
/// # Errors
/// Those of [`check`], if a kernel fails, and if there are none.
pub fn run(context: &Context) -> Result {
    match check(context)? {
        None => Err("no CUDA kernels in the build folder: run `cargo build --release`".into()),
        Some(summary) if summary.failed > 0 => Err(format!("{} kernels fail", summary.failed).into()),
        Some(summary) => {
            println!("{} kernels pass", summary.passed);
            Ok(())
        }
    }
}

/// What a forward kernel must look like; mirrors `kernels/sm90/forward/config.h`.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    /// Type of the operands in the shape of a product.
    operands: &'static str,
    head_dim: u32,
    /// Keys of a block, and of a short last one.
    blocks: Vec<u32>,
    /// Columns of a product with V.
    output_columns: u32,
    /// The exponentials of the steady loop must run beside the tensor cores.
    tuned: bool,
}

impl Expected {
    fn of(kernel: &str) -> Option<Self> {
        let words: Vec<&str> = kernel.strip_prefix("jfa_sm90_forward_")?.split('_').collect();
        let (dtype, dim, masked, small) = match words[..] {
            [dtype, dim] | [dtype, dim, "pack"] => (dtype, dim, false, false),
            [dtype, dim, "mask"] => (dtype, dim, true, false),
            [dtype, dim, "m64"] | [dtype, dim, "pack", "m64"] => (dtype, dim, false, true),
            _ => return None,
        };
        let operands = match dtype {
            "bf16" => "F32.BF16",
            "fp16" => "F32",
            _ => return None,
        };
        let head_dim = dim.strip_prefix('d')?.parse().ok()?;
        Some(Expected {
            operands,
            head_dim,
            blocks: if head_dim <= 128 && !small { vec![128, 64] } else { vec![64] },
            output_columns: if head_dim % 128 == 0 { 128 } else { 64 },
            tuned: !masked && head_dim <= 128,
        })
    }

    /// What is wrong with a kernel, as the ends of sentences that begin with its name.
    fn check(&self, kernel: &Kernel) -> Vec<String> {
        let mut wrong = Vec::new();
        let products = kernel.products();
        let count = |columns: u32, source: &str| {
            products.get(&format!("64x{columns}x16.{} {source}", self.operands)).copied().unwrap_or(0)
        };
        for &keys in &self.blocks {
            let found = count(keys, "ss");
            if found == 0 || found % (self.head_dim as usize / 16) != 0 {
                wrong.push(format!("has {found} products for scores of {keys} keys, no multiple of head_dim / 16"));
            }
        }
        if count(self.output_columns, "rs") == 0 {
            wrong.push(format!("has no product of {} columns with V", self.output_columns));
        }
        let dtype = format!("x16.{} ", self.operands);
        if products.keys().any(|shape| !shape.contains(&dtype)) {
            wrong.push(format!("has products of another type: {products:?}"));
        }
        wrong.extend(kernel.local_fault());
        if let Some(first) = kernel.overwritten_products().first() {
            wrong.push(format!("overwrites an operand of a product in flight at {:#x}: {}", first.address, first.op));
        }
        let steady: Vec<_> = kernel.overlaps().into_iter().filter(|overlap| !overlap.boundary).collect();
        if self.tuned && steady.is_empty() {
            wrong.push("has no steady loop that waits for the scores alone".into());
        }
        // A thread holds keys / 2 scores of a block: two rows, every fourth pair of columns.
        for overlap in steady.iter().filter(|o| self.tuned && o.before < o.keys as usize / 4) {
            wrong.push(format!(
                "computes only {} of {} exponentials before the last wait of its block ({:#x}): the compiler moved \
                 them behind it, where nothing overlaps",
                overlap.before,
                overlap.keys / 2,
                overlap.address
            ));
        }
        wrong
    }
}

fn row(kernel: &Kernel) -> String {
    let overlaps = kernel.overlaps();
    let list = |boundary| {
        let of_kind = overlaps.iter().filter(|overlap| overlap.boundary == boundary);
        let pairs: Vec<_> = of_kind.map(|overlap| format!("{}/{}", overlap.before, overlap.after)).collect();
        pairs.join(" ")
    };
    let products: Vec<_> = kernel.products().into_iter().map(|(shape, count)| format!("{count} {shape}")).collect();
    format!(
        "{:<36} {:>9}  {} | {}\n{:<36} {:>9}  products: {}",
        kernel.name,
        kernel.registers(),
        list(false),
        list(true),
        "",
        "",
        products.join(", ")
    )
}

/// The images of the newest build, in the order of their names; `None` if no build has CUDA kernels.
///
/// # Errors
/// If a folder cannot be read.
pub fn images(context: &Context) -> Result<Option<Vec<PathBuf>>> {
    let Some(folder) = newest_images(&context.target)? else { return Ok(None) };
    println!("{}", folder.display());
    let mut images: Vec<PathBuf> = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    images.retain(|path| path.extension().is_some_and(|extension| extension == "fatbin"));
    images.sort();
    Ok(Some(images))
}

/// cuobjdump, which finds the nvdisasm that lies beside it.
///
/// # Errors
/// If it is not installed.
pub fn cuobjdump(context: &Context) -> Result<Command> {
    let programs = disassembler(context)?;
    let mut command = context.command(programs.join("cuobjdump"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)))?);
    Ok(command)
}

/// The output folder of the build script that compiled kernels last.
fn newest_images(target: &Path) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for profile in ["release", "debug"] {
        let Ok(entries) = fs::read_dir(target.join(profile).join("build")) else { continue };
        for entry in entries {
            let out = entry?.path().join("out");
            if let Ok(modified) = fs::metadata(out.join("plan.fatbin")).and_then(|file| file.modified()) {
                found.push((modified, out));
            }
        }
    }
    Ok(found.into_iter().max().map(|(_, out)| out))
}

/// The folder of cuobjdump and nvdisasm: of `cargo xtask toolchain`, of the path, or the usual one of CUDA.
fn disassembler(context: &Context) -> Result<PathBuf> {
    let installed = site_packages(&context.target.join("tools/cuda")).map(|site| site.join("nvidia/cu13/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = installed.ok().into_iter().chain(std::env::split_paths(&path));
    let mut folders = folders.chain(std::iter::once(PathBuf::from("/usr/local/cuda/bin")));
    let complete = |folder: &PathBuf| folder.join("cuobjdump").is_file() && folder.join("nvdisasm").is_file();
    Ok(folders.find(complete).ok_or("no cuobjdump with nvdisasm found: run `cargo xtask toolchain`")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_expected() {
        let expected = Expected::of("jfa_sm90_forward_fp16_d192_mask").expect("known");
        let parts = (expected.operands, expected.head_dim, expected.output_columns, expected.tuned);
        assert_eq!(parts, ("F32", 192, 64, false));
        assert_eq!(expected.blocks, [64]);
        assert_eq!(
            Expected::of("jfa_sm90_forward_bf16_d128").map(|e| (e.blocks, e.tuned)),
            Some((vec![128, 64], true))
        );
        assert_eq!(
            Expected::of("jfa_sm90_forward_bf16_d64_pack_m64").map(|e| (e.blocks, e.tuned)),
            Some((vec![64], true))
        );
        assert_eq!(Expected::of("jfa_sm90_forward_bf16_d64_m64_pack"), None);
        assert_eq!(Expected::of("jfa_sm90_forward_bf8_d128"), None);
        assert_eq!(Expected::of("jfa_sm90_backward_bf16_d128"), None);
    }

    /// A d64 kernel in the intended order: scores, product, wait for scores, exponentials, wait for everything.
    fn d64(before: usize, after: usize, extra: &str) -> Kernel {
        let mut lines = vec!["HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"; 4];
        lines.extend(["HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"; 4]);
        lines.extend([
            "HGMMA.64x64x16.F32.BF16 R88, R152, gdesc[UR8].tnspB, R88, gsb0",
            "WARPGROUP.DEPBAR.LE gsb0, 0x1",
        ]);
        lines.extend(vec!["MUFU.EX2 R4, R5"; before]);
        lines.extend([extra, "WARPGROUP.DEPBAR.LE gsb0, 0x0"]);
        lines.extend(vec!["MUFU.EX2 R4, R5"; after]);
        lines.push("EXIT");
        let code = lines.iter().enumerate().map(|(i, line)| format!("/*{:04x}*/ {line} ;\n", 16 * i));
        let text = format!("Function : jfa_sm90_forward_bf16_d64\n{}", code.collect::<String>());
        Kernel::parse(&text).pop().expect("one kernel")
    }

    #[test]
    fn a_kernel_is_judged_by_every_rule() {
        let expected = Expected::of("jfa_sm90_forward_bf16_d64").expect("known");
        let check = |kernel: &Kernel| expected.check(kernel).join("; ");
        assert_eq!(check(&d64(64, 0, "NOP")), "");
        assert_eq!(check(&d64(32, 32, "NOP")), "");
        assert!(check(&d64(13, 51, "NOP")).contains("only 13 of 64 exponentials"));
        assert!(check(&d64(64, 0, "LDL R4, [R1]")).contains("local memory 1 times"));
        assert!(check(&d64(64, 0, "MOV R153, R4")).contains("in flight at"));
        let mut other = d64(64, 0, "NOP");
        other.code.retain(|i| !i.op.starts_with("HGMMA.64x128"));
        assert!(check(&other).contains("0 products for scores of 128 keys"));
    }
}
