//! The line budget of the CUDA kernels.

use std::fs;

use crate::context::{Context, Result};
use crate::test::find_sources;

/// Lines of code that the kernels of all architectures may have together. What they share is not among them: it is
/// written once, beside their folders.
const BUDGET: usize = 3200;
/// The folders of the architectures in `kernels/`.
const ARCHITECTURES: [&str; 2] = ["sm90", "sm100"];

/// Prints the lines of every folder of `kernels/`; code is what is neither blank nor a comment.
///
/// # Errors
/// If the budget is exceeded.
pub fn check(context: &Context) -> Result {
    let mut folders =
        fs::read_dir(context.root.join("kernels"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    folders.sort();
    let (mut budgeted, mut all) = (0, (0, 0));
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut files = Vec::new();
        find_sources(&folder, &mut files)?;
        let texts = files.iter().map(fs::read_to_string).collect::<std::io::Result<Vec<_>>>()?;
        let (lines, code) = count(&texts.concat());
        println!("{name:<10} {lines:5} lines, {code:5} of code");
        all = (all.0 + lines, all.1 + code);
        if ARCHITECTURES.contains(&name.as_str()) {
            budgeted += code;
        }
    }
    println!("{:<10} {:5} lines, {:5} of code", "all", all.0, all.1);
    println!("{} together: {budgeted} lines of code, at most {BUDGET}", ARCHITECTURES.join(" and "));
    if budgeted > BUDGET { Err("the kernels exceed their line budget".into()) } else { Ok(()) }
}

/// Lines of a C++ text, and those that are neither blank nor a comment.
fn count(text: &str) -> (usize, usize) {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    (text.lines().count(), text.lines().filter(is_code).count())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn blank_lines_and_comments_are_no_code() {
        assert_eq!(count("// Why.\nint x;  // what\n\n  // how\n}\n"), (5, 2));
    }
}
