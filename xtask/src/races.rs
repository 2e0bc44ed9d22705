//! Two races in Tensor Memory, put back on purpose: without one of two waits of the Blackwell backward's pairs cudasim
//! must report them, and with both there is none. `docs/backward.md` tells what the waits are for.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Command, Stdio};

use crate::context::{Context, Result, fresh_folder};
use crate::{sass, sim};

const KERNEL: &str = "jfa_sm100_backward_bf16_d128_pair";
/// Small cases that take the steps with and without a mask.
const CASES: &str = "numeric/packed-d128-h4.1-full";
/// Threads that meet between reading S and writing P: those of two warps.
const MEETING: &str = "64";

/// An instruction to leave out, and the race that cudasim must then report.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Omission {
    what: &'static str,
    /// In the PTX of the image, from 1.
    line: usize,
    text: String,
    /// Where the race is.
    columns: Range<u32>,
    between: Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// The load of S by one warp, the store of P by another.
    LoadAndStore,
    /// The product that makes dQ, and S or the load of it.
    ProductAndScores,
}

/// What cudasim says of a race in Tensor Memory.
#[derive(Debug, PartialEq, Eq)]
struct Race<'a> {
    column: u32,
    /// Who accessed the column before: `tcgen05.ld and st` or `tcgen05 operations` (products, copies).
    earlier: &'a str,
    /// The instruction that was found out.
    instruction: &'a str,
}

/// Leaves out each of the two waits, wherever the compiler has put it; the number of runs that were as they must be.
///
/// # Errors
/// If an instruction is not found where it must be, if a race is not reported, or if there is one without an omission.
pub fn check(context: &Context) -> Result<u64> {
    let tables = sim::Tables::build(context)?;
    let command = || {
        let shape = sim::Shape { seed: 1, device: "b200", multiprocessors: 4, random: 0 };
        let mut command = tables.command(context, shape, CASES);
        command.env(sim::PAIRS, "1");
        command
    };
    let omissions = find(&ptx(context)?)?;
    context.run(&mut command())?;
    println!("no race with everything in place");
    for omission in &omissions {
        let wish = format!("{KERNEL}:{}", number(&command, omission)?);
        let output = command().env("CUDASIM_OMIT", wish).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let report = text.lines().find(|line| line.starts_with("cudasim: seed ")).unwrap_or("nothing");
        let Omission { what, line, .. } = omission;
        match Race::parse(&text) {
            Some(race) if omission.causes(&race) => println!("without {what} (line {line}): {report}"),
            _ => {
                return Err(format!(
                    "without {what} (line {line}) there is a race in columns {:?} of Tensor Memory, but cudasim reports \
                     {report}\n{text}",
                    omission.columns
                )
                .into());
            }
        }
    }
    Ok(1 + omissions.len() as u64)
}

/// The PTX of the image that holds the kernel.
fn ptx(context: &Context) -> Result<String> {
    let images = sass::images(context)?.ok_or("no CUDA kernels were built")?;
    let holds = |path: &&std::path::PathBuf| {
        let name = [b".text.", KERNEL.as_bytes(), b"\0"].concat();
        fs::read(path).is_ok_and(|image| image.windows(name.len()).any(|bytes| bytes == name))
    };
    let image = images.iter().find(holds).ok_or_else(|| format!("no image holds {KERNEL}"))?;
    let folder = context.target.join("races");
    fresh_folder(&folder)?;
    let mut extract = sass::cuobjdump(context)?;
    context.output(extract.current_dir(&folder).args(["--extract-ptx", "all"]).arg(image))?;
    for entry in fs::read_dir(&folder)? {
        let text = fs::read_to_string(entry?.path())?;
        if text.contains(&entry_of(KERNEL)) {
            return Ok(text);
        }
    }
    Err(format!("{} holds no PTX of {KERNEL}", image.display()).into())
}

fn entry_of(kernel: &str) -> String {
    format!(".entry {kernel}(")
}

/// The instructions to leave out, by what they do: barriers of two warps behind the arrival that tells that S was read,
/// in steps with a mask and in those without; and the wait for these arrivals ahead of dQ.
fn find(ptx: &str) -> Result<Vec<Omission>> {
    let all: Vec<&str> = ptx.lines().map(str::trim).collect();
    let start = all.iter().position(|line| line.contains(&entry_of(KERNEL))).ok_or("the PTX has no such kernel")?;
    let end = all[start + 1..].iter().position(|line| line.contains(".entry ")).map_or(all.len(), |at| start + 1 + at);
    let lines = &all[start..end];
    let constants = constants(lines);
    let omission = |at: usize, what, columns, between| Omission {
        what,
        line: start + at + 1,
        text: lines[at].into(),
        columns,
        between,
    };

    let mut scores_read = None;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("bar.sync ")) {
        if operands(line).get(1).map(|threads| *constants.get(threads).unwrap_or(threads)) != Some(MEETING) {
            continue;
        }
        let offset = arrival_before(&lines[..at], &constants);
        let offset = offset.ok_or_else(|| format!("no arrival ahead of PTX line {}: {line}", start + at + 1))?;
        if *scores_read.get_or_insert(offset) != offset {
            return Err("barriers of two warps follow arrivals at different mbarriers".into());
        }
        found.push(omission(at, "the barrier between reading S and writing P", 32..64, Between::LoadAndStore));
    }
    if found.len() != 2 {
        return Err(format!("{KERNEL} has {} barriers of {MEETING} threads, not 2", found.len()).into());
    }

    // That of the loop: the one behind it waits in vain, since P and dS, which come later than S, are waited for, too.
    let waits: Vec<usize> = (0..lines.len())
        .filter(|&at| lines[at].contains("mbarrier.try_wait."))
        .filter(|&at| address(lines[at]).and_then(|register| constants.get(register).copied()) == scores_read)
        .filter(|&at| follows_grad_p(&lines[..at]))
        .collect();
    let [wait] = waits[..] else {
        return Err(format!("{KERNEL} waits {} times between dP and dQ for S to be read, not once", waits.len()).into());
    };
    found.push(omission(wait, "the wait for S to be read before dQ", 64..128, Between::ProductAndScores));
    Ok(found)
}

/// Registers that hold a constant, or another register plus one, with that constant.
fn constants<'a>(lines: &[&'a str]) -> HashMap<&'a str, &'a str> {
    let mut found = HashMap::new();
    for line in lines.iter().filter(|line| line.starts_with("add.s32") || line.starts_with("mov.b32")) {
        if let [to, .., last] = operands(line)[..]
            && last.parse::<u32>().is_ok()
        {
            found.insert(to, last);
        }
    }
    found
}

/// What stands behind the name of an instruction.
fn operands(line: &str) -> Vec<&str> {
    let all = line.trim_end_matches(';').split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
    all.split(',').map(str::trim).collect()
}

/// The register in the first brackets.
fn address(line: &str) -> Option<&str> {
    Some(line.split_once('[')?.1.split_once(']')?.0)
}

/// The offset of the mbarrier, of the leader of a pair, where the last arrival arrives.
fn arrival_before<'a>(lines: &[&'a str], constants: &HashMap<&str, &'a str>) -> Option<&'a str> {
    let arrival = lines.iter().rfind(|line| line.contains("mbarrier.arrive."))?;
    let maps = |line: &&&str| line.starts_with("mapa.") && operands(line).first().copied() == address(arrival);
    constants.get(operands(lines.iter().rfind(maps)?).get(1)?).copied()
}

/// Whether the product before has both operands in shared memory: dP, while dK has dS in Tensor Memory.
fn follows_grad_p(lines: &[&str]) -> bool {
    let product = lines.iter().rfind(|line| line.starts_with("tcgen05.mma."));
    product.is_some_and(|line| !operands(line)[1].starts_with('['))
}

/// The number by which cudasim knows the instruction; numbers ascend with the lines.
fn number(command: &impl Fn() -> Command, omission: &Omission) -> Result<usize> {
    let place = |number: usize| place(command().env("CUDASIM_OMIT", format!("{KERNEL}:{number}")));
    let Place::Beyond(count) = place(usize::MAX)? else { return Err("cudasim counts no instructions".into()) };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match place(middle)? {
            Place::Line(line, text) if line == omission.line && text.starts_with(&omission.text) => return Ok(middle),
            Place::Line(line, _) if line < omission.line => low = middle + 1,
            _ => high = middle,
        }
    }
    Err(format!("cudasim cannot leave out PTX line {}: {}", omission.line, omission.text).into())
}

/// What cudasim says of a number.
enum Place {
    /// PTX line and its text.
    Line(usize, String),
    /// There are only so many.
    Beyond(usize),
}

/// Reads where the instruction is that a command leaves out, and ends the command then.
fn place(command: &mut Command) -> Result<Place> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stderr.take().ok_or("no pipe")?).lines();
    let place = lines.map_while(std::io::Result::ok).find_map(|line| {
        if let Some((_, place)) = line.split_once(" without PTX line ") {
            let (line, text) = place.split_once(": ")?;
            return Some(Place::Line(line.parse().ok()?, text.into()));
        }
        let (_, rest) = line.split_once(" has only ")?;
        Some(Place::Beyond(rest.strip_suffix(" ordering instructions")?.parse().ok()?))
    });
    child.kill()?;
    child.wait()?;
    Ok(place.ok_or_else(|| format!("cudasim did not load {KERNEL}"))?)
}

impl<'a> Race<'a> {
    /// The race that a run stopped at.
    fn parse(report: &'a str) -> Option<Self> {
        let mut lines = report.lines().skip_while(|line| !line.starts_with("cudasim: seed "));
        let (_, race) = lines.next()?.split_once("data race: lane ")?;
        let (column, access) = race.split_once("column ")?.1.split_once(" of Tensor Memory was ")?;
        let earlier = access.split_once("by ")?.1.split_once(" of CTA ")?.0;
        let instruction = lines.find_map(|line| line.trim_start().strip_prefix("PTX line "))?.split_once(": ")?.1;
        Some(Race { column: column.parse().ok()?, earlier, instruction })
    }
}

impl Omission {
    /// Whether the race is the one that the instruction prevents.
    fn causes(&self, race: &Race) -> bool {
        let is = |name| race.instruction.starts_with(name);
        let loads_or_stores = is("tcgen05.ld.") || is("tcgen05.st.");
        self.columns.contains(&race.column)
            && match self.between {
                Between::LoadAndStore => loads_or_stores && race.earlier == "tcgen05.ld and st",
                Between::ProductAndScores => {
                    is("tcgen05.mma.") || is("tcgen05.ld.") && race.earlier == "tcgen05 operations"
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of the warpgroups that compute.
    const STEP: &str = "\
add.s32 %r7, %r1, 808;
mapa.shared::cluster.u32 %r6, %r7, %r0;
@arrives mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
mov.b32 \t%r9, 64;
bar.sync %r2, %r9;
";
    /// dP or dK, then waits for dS and for S to be read, and dQ.
    const GRAD_P: &str = "tcgen05.mma.cta_group::2.kind::f16 [%r3], %rd24, %rd25, %r18, p;\n";
    const GRAD_K: &str = "tcgen05.mma.cta_group::2.kind::f16 [%r3], [%r4], %rd25, %r18, p;\n";
    const SUM: &str = "\
add.s32 %r10, %r1, 800;
again: mbarrier.try_wait.parity.shared::cta.b64 done, [%r10], %r5;
add.s32 %r11, %r1, 808;
again: mbarrier.try_wait.parity.shared::cta.b64 done, [%r11], %r5;
tcgen05.mma.cta_group::2.kind::f16 [%r3], %rd28, %rd29, %r17, p;
";

    fn kernel(parts: &[&str]) -> String {
        let other = ".visible .entry other(\nbar.sync 1, 64;\n";
        format!("{other}.visible .entry {KERNEL}(\nbar.sync 5, 128;\n{}{other}", parts.concat())
    }

    #[test]
    fn instructions_are_found_by_what_they_do() {
        let found = find(&kernel(&[STEP, STEP, GRAD_P, SUM, GRAD_K, SUM])).expect("all there");
        let places = found.iter().map(|o| (o.line, o.text.as_str())).collect::<Vec<_>>();
        let wait = "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%r11], %r5;";
        assert_eq!(places, [(9, "bar.sync %r2, %r9;"), (14, "bar.sync %r2, %r9;"), (19, wait)]);
    }

    #[test]
    fn what_is_missing_or_not_unique_is_named() {
        let error = |parts: &[&str]| find(&kernel(parts)).expect_err("not as it must be").to_string();
        assert!(error(&[STEP, GRAD_P, SUM]).contains("has 1 barriers of 64 threads, not 2"));
        assert!(error(&[STEP, STEP, GRAD_K, SUM]).contains("waits 0 times"));
        assert!(error(&[STEP, STEP, GRAD_P, SUM, GRAD_P, SUM]).contains("waits 2 times"));
        assert!(error(&["bar.sync 1, 64;\n"]).contains("no arrival ahead of PTX line 5"));
        let other = STEP.replace("808", "816").replace("%r6", "%r20").replace("%r7", "%r21");
        assert!(error(&[STEP, &other, GRAD_P, SUM]).contains("different mbarriers"));
    }

    #[test]
    fn only_the_race_meant_counts() {
        let report = |column, access, instruction| {
            format!(
                "cudasim: {KERNEL} without PTX line 7: bar.sync 1, 64;\n\
                 cudasim: seed 1, launch 4: data race: lane 96, column {column} of Tensor Memory was {access} of CTA \
                 [0, 0, 0] warp 7, and nothing that was waited for orders the two\n  in {KERNEL}, CTA (0, 0, 0), warp 11\n  \
                 PTX line 17652: {instruction}.32x32b.x16.b32 [%r2585], {{%r2518}};\n"
            )
        };
        let found = find(&kernel(&[STEP, STEP, GRAD_P, SUM])).expect("all there");
        let causes = |omission: usize, column, access, instruction| {
            found[omission].causes(&Race::parse(&report(column, access, instruction)).expect("a race"))
        };
        assert!(causes(0, 32, "read by tcgen05.ld and st", "tcgen05.st"));
        assert!(causes(1, 63, "written by tcgen05.ld and st", "tcgen05.ld"));
        assert!(!causes(0, 64, "read by tcgen05.ld and st", "tcgen05.st"));
        assert!(!causes(0, 32, "read by tcgen05 operations", "tcgen05.st"));
        assert!(!causes(0, 32, "read by tcgen05.ld and st", "tcgen05.mma"));
        assert!(causes(2, 64, "written by tcgen05 operations", "tcgen05.mma"));
        assert!(causes(2, 64, "written by tcgen05 operations", "tcgen05.ld"));
        assert!(!causes(2, 64, "read by tcgen05.ld and st", "tcgen05.st"));
        assert!(!causes(2, 32, "written by tcgen05 operations", "tcgen05.mma"));
        assert_eq!(Race::parse("cudasim: seed 1, launch 4: divergence: every warp waits"), None);
        assert_eq!(Race::parse("1 passed, 0 failed"), None);
    }
}
