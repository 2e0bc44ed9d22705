//! Results of one device as a file, and those of another run compared with them, bit for bit.
//!
//! They are of a GPU, for a simulator of it: the order and rounding of all sums is that of the kernels. Kernels whose
//! arithmetic is another one have to be recorded anew.

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
use problems::Problem;

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

/// Runs every problem and compares with the results in `path`; whether all are equal.
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

/// One forward of packed queries, compared with float64.
fn run(target: Target, problem: &Problem) -> Result<Record, String> {
    let inputs = problem.inputs(&Geometry::new(&problem.case));
    let hash = hash(problem.case.dtype, &inputs);
    let (case, inputs) = &problem.packed(&inputs);
    let mut session = Session::new(target, case)?;
    session.upload(inputs)?;
    let api = target.api;
    api.expect("jfa_plan_update", session.update())?;
    api.expect("jfa_plan_check", session.check())?;
    api.expect("jfa_forward", session.forward(true))?;
    let results = session.results()?;
    let mut report = Report::default();
    compare(case, &reference::compute(case, &session.geometry, inputs), &results, &mut report);
    session.violations()?.into_iter().for_each(|text| report.fail(text));
    match report.failures.is_empty() {
        true => Ok(Record { path: case.path(), inputs: hash, o: results.o, lse: results.lse }),
        false => Err(format!("{}: {}", case.path(), report.failures.join("; "))),
    }
}

/// FNV-1a of the bytes of Q, K and V.
fn hash(dtype: Dtype, inputs: &Inputs) -> u64 {
    let mut bytes = Vec::new();
    [&inputs.q, &inputs.k, &inputs.v].into_iter().for_each(|values| dtype.encode(values, &mut bytes));
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Whether all bits are equal; otherwise an error that says how far off they are.
fn judge(problem: &Problem, got: &Record, want: &Record) -> Result<String, String> {
    if got.inputs != want.inputs {
        return Err("has other inputs than the recorded ones".into());
    }
    let case = &problem.case;
    let o = Distance::new(case.dtype, case.head_dim, &got.o, &want.o);
    let lse = Distance::new(Dtype::Fp32, 1, &got.lse, &want.lse);
    if o.is_zero() && lse.is_zero() {
        return Ok(format!("{} elements of O and {} of LSE equal to the bit", o.count, lse.count));
    }
    Err(format!(
        "{} of {} elements of O equal, the others off by up to {} units in the last place ({:.2} of the row's largest \
         element); {} of {} of LSE, off by up to {}",
        o.equal, o.count, o.element, o.row, lse.equal, lse.count, lse.element
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_counts() {
        let problem = problems::all().remove(0);
        let want = Record { path: problem.case.path(), inputs: 1, o: vec![1.0; 128], lse: vec![1.0] };
        assert!(judge(&problem, &want, &want).is_ok());
        let (mut o, mut lse) = (want.clone(), want.clone());
        (o.o[5], lse.lse[0]) = (1.0078125, 1.0f32.next_up());
        let other = Record { inputs: 2, ..want.clone() };
        for got in [o, lse, other] {
            assert!(judge(&problem, &got, &want).is_err());
        }
    }
}
