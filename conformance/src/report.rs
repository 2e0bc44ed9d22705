//! What is printed and written about a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::run::Outcome;

/// Result of one case.
pub struct Entry {
    /// Section.
    pub group: &'static str,
    /// Name with its group.
    pub path: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Seconds that it took, the reference included.
    pub seconds: f64,
}

impl Entry {
    /// The worst failure in one line, or none.
    pub fn failure(&self) -> Option<String> {
        match &self.outcome {
            Outcome::Done(report) if !report.failures.is_empty() => Some(report.failures.join("; ")),
            _ => None,
        }
    }
}

/// One line a group: how many, worst error of each tensor, time.
pub fn summary(entries: &[Entry]) -> String {
    let mut groups: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    entries.iter().for_each(|entry| groups.entry(entry.group).or_default().push(entry));
    let mut text = String::new();
    for (group, entries) in groups {
        let failed = entries.iter().filter(|entry| entry.failure().is_some()).count();
        let skipped = entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Skipped(_))).count();
        let seconds: f64 = entries.iter().map(|entry| entry.seconds).sum();
        let _ = write!(
            text,
            "{group:<11} {:>4} cases, {failed} failed, {skipped} skipped, {seconds:6.1} s;",
            entries.len()
        );
        let mut worst: BTreeMap<(String, &str), f64> = BTreeMap::new();
        for entry in entries {
            let dtype = entry.path.rsplit('/').next().unwrap_or_default();
            if let Outcome::Done(report) = &entry.outcome {
                for (&tensor, &error) in &report.errors {
                    let worst = worst.entry((dtype.into(), tensor)).or_insert(0.0);
                    *worst = worst.max(error);
                }
            }
        }
        let mut last = String::new();
        for ((dtype, tensor), error) in worst {
            if dtype != last {
                let _ = write!(text, "\n    worst {dtype}:");
                last = dtype;
            }
            let _ = write!(text, " {tensor} {error:.1e}");
        }
        text.push('\n');
    }
    text
}

/// All results as JSON.
pub fn json(entries: &[Entry]) -> String {
    let quote = |text: &str| {
        let mut out = String::from("\"");
        for c in text.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if c < ' ' => {
                    let _ = write!(out, "\\u{:04x}", c as u32);
                }
                c => out.push(c),
            }
        }
        out + "\""
    };
    let item = |entry: &Entry| {
        let (state, errors) = match &entry.outcome {
            Outcome::Skipped(_) => ("skipped", String::new()),
            Outcome::Done(report) => {
                let number = |x: f64| if x.is_finite() { format!("{x:e}") } else { "null".into() };
                let errors: Vec<String> = report
                    .errors
                    .iter()
                    .map(|(tensor, error)| format!("{}: {}", quote(tensor), number(*error)))
                    .collect();
                (if report.failures.is_empty() { "passed" } else { "failed" }, errors.join(", "))
            }
        };
        let message = match &entry.outcome {
            Outcome::Skipped(text) => text.clone(),
            Outcome::Done(_) => entry.failure().unwrap_or_default(),
        };
        format!(
            "  {{\"case\": {}, \"state\": {}, \"seconds\": {:.4}, \"errors\": {{{errors}}}, \"message\": {}}}",
            quote(&entry.path),
            quote(state),
            entry.seconds,
            quote(&message)
        )
    };
    format!("[\n{}\n]\n", entries.iter().map(item).collect::<Vec<_>>().join(",\n"))
}
