//! Results of one device as a file, and those of another run compared with them, bit for bit.

mod distance;
mod file;
mod problems;

use std::path::Path;

use crate::compare::{Report, compare};
use crate::dtype::Dtype;
use crate::geometry::Geometry;
use crate::reference::{self, Inputs};
use crate::session::{Session, Target};
use distance::Distance;
use file::{Record, Recording};
use problems::{Problem, Scores};

/// Runs every problem and writes the results to `path`, unless one is wrong.
pub fn record(target: Target, device: &str, path: &Path) -> Result<bool, String> {
    let mut records = Vec::new();
    for problem in problems::all() {
        let record = run(target, &problem)?;
        println!("{}: {} elements of O, {} of LSE", record.path, record.o.len(), record.lse.len());
        records.push(record);
    }
    let bytes = Recording { device: device.into(), records }.encode();
    std::fs::write(path, &bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{} bytes from {device}", bytes.len());
    Ok(true)
}

/// Runs every problem and compares with the results in `path`; whether all obey their rule.
pub fn verify(target: Target, path: &Path) -> Result<bool, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let recording = Recording::decode(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("against {}", recording.device);
    let problems = problems::all();
    let mut failed = 0;
    for problem in &problems {
        let path = problem.case.path();
        let result = recording
            .records
            .iter()
            .find(|record| record.path == path)
            .ok_or("is not in the file".into())
            .and_then(|want| judge(problem, &run(target, problem)?, want));
        match result {
            Ok(text) => println!("{path}: {text}"),
            Err(text) => {
                println!("FAILED {path}: {text}");
                failed += 1;
            }
        }
    }
    println!("{} passed, {failed} failed", problems.len() - failed);
    Ok(failed == 0 && recording.records.len() == problems.len())
}

/// One forward, compared with float64.
fn run(target: Target, problem: &Problem) -> Result<Record, String> {
    let case = &problem.case;
    let inputs = problem.inputs(&Geometry::new(case));
    let mut session = Session::new(target, case)?;
    session.upload(&inputs)?;
    let api = target.api;
    api.expect("jfa_plan_update", session.update())?;
    api.expect("jfa_plan_check", session.check())?;
    api.expect("jfa_forward", session.forward(true))?;
    let results = session.results()?;
    let mut report = Report::default();
    compare(case, &reference::compute(case, &session.geometry, &inputs), &results, &mut report);
    session.violations()?.into_iter().for_each(|text| report.fail(text));
    match report.failures.is_empty() {
        true => Ok(Record { path: case.path(), inputs: hash(case.dtype, &inputs), o: results.o, lse: results.lse }),
        false => Err(format!("{}: {}", case.path(), report.failures.join("; "))),
    }
}

/// FNV-1a of the bytes of Q, K and V.
fn hash(dtype: Dtype, inputs: &Inputs) -> u64 {
    let mut bytes = Vec::new();
    [&inputs.q, &inputs.k, &inputs.v].into_iter().for_each(|values| dtype.encode(values, &mut bytes));
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// What may differ.
struct Rule {
    /// Smallest share of equal elements of O.
    o_share: f64,
    /// Largest difference of O, in units in the last place of the largest element of its row.
    o_units: f64,
    /// Smallest share of equal elements of LSE.
    lse_share: f64,
    /// Largest difference of LSE, in its units in the last place.
    lse_units: f64,
}

impl Rule {
    fn of(scores: Scores) -> Rule {
        match scores {
            Scores::Powers => Rule { o_share: 1.0, o_units: 0.0, lse_share: 1.0, lse_units: 0.0 },
            // ex2, lg2 and rcp may be off by two units of fp32, whereby a P or an O is rounded the other way.
            Scores::Random => Rule { o_share: 0.9, o_units: 1.0, lse_share: 0.3, lse_units: 4.0 },
        }
    }
}

/// The differences in words, as an error if the rule forbids them.
fn judge(problem: &Problem, got: &Record, want: &Record) -> Result<String, String> {
    if got.inputs != want.inputs {
        return Err("has other inputs than the recorded ones".into());
    }
    let case = &problem.case;
    let o = Distance::new(case.dtype, case.head_dim, &got.o, &want.o);
    let lse = Distance::new(Dtype::Fp32, 1, &got.lse, &want.lse);
    let text = format!(
        "O {} of {} equal, off by {} ({:.2} of its row's largest) units in the last place at most; LSE {} of {}, {}",
        o.equal, o.count, o.element, o.row, lse.equal, lse.count, lse.element
    );
    let rule = Rule::of(problem.scores);
    let obeys = o.share() >= rule.o_share
        && o.row <= rule.o_units
        && lse.share() >= rule.lse_share
        && lse.element <= rule.lse_units;
    if obeys { Ok(text) } else { Err(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tell_bits_from_units() {
        let problems = problems::all();
        let find =
            |scores| problems.iter().find(|problem| problem.scores == scores && problem.case.dtype == Dtype::Bf16);
        let (powers, random) = (find(Scores::Powers).unwrap(), find(Scores::Random).unwrap());
        let want = Record { path: powers.case.path(), inputs: 1, o: vec![1.0; 128], lse: vec![1.0] };
        let mut off = want.clone();
        off.o[5] = 1.0078125;
        assert!(judge(powers, &want, &want).is_ok() && judge(powers, &off, &want).is_err());
        assert!(judge(random, &off, &want).is_ok());
        off.o[5] = 1.015625;
        assert!(judge(random, &off, &want).is_err());
        let other = Record { inputs: 2, ..want.clone() };
        assert!(judge(random, &other, &want).is_err());
    }
}
