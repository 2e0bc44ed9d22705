//! Reads the offsets of a batch and checks every one of them.

use std::ffi::c_void;

use super::{Error, IndexType, Problem, Result, Sequence, Status};
use crate::plan::Batch;

/// A host array of offsets of either type.
#[derive(Clone, Copy)]
struct Indices {
    data: *const c_void,
    index_type: IndexType,
}

impl Indices {
    /// # Safety
    /// `i` lies within the array.
    unsafe fn get(self, i: usize) -> i64 {
        // SAFETY: the caller's promise; the array need not be aligned.
        unsafe {
            match self.index_type {
                IndexType::Int32 => self.data.cast::<i32>().add(i).read_unaligned().into(),
                IndexType::Int64 => self.data.cast::<i64>().add(i).read_unaligned(),
            }
        }
    }
}

/// The sequences that the offsets describe.
///
/// # Safety
/// The arrays of `batch` hold as many values as its size says.
pub(super) unsafe fn read(problem: &Problem, batch: &Batch) -> Result<Vec<Sequence>> {
    let array = |data| Indices { data, index_type: problem.index_type };
    let (q, kv, lengths) = (array(batch.q_offsets), array(batch.kv_offsets), array(batch.kv_lengths));
    let limits = &problem.limits;
    let mut sequences = Vec::with_capacity(batch.batch as usize);
    for b in 0..batch.batch as usize {
        // SAFETY: the caller's promise, here and below.
        let (begin_kv, slot) = unsafe { range("kv_offsets", kv, b, batch.total_kv) }?;
        let len_kv = if batch.kv_lengths.is_null() {
            slot
        } else {
            // SAFETY: as above.
            let length = unsafe { lengths.get(b) };
            if !(0..=slot).contains(&length) {
                return Err(bad("kv_lengths", b, length, format!("0 to the {slot} rows of its slot")));
            }
            length
        };
        if len_kv > limits.seqlen_kv {
            let rule = format!("max_seqlen_kv = {}", limits.seqlen_kv);
            return Err(bad("kv_offsets", b, begin_kv, format!("at most {rule} below the next, not {len_kv}")));
        }
        let (begin_q, begin_o, len_q) = if problem.broadcast_q {
            (0, b as i64 * limits.seqlen_q, limits.seqlen_q)
        } else {
            // SAFETY: as above.
            let (begin, len) = unsafe { range("q_offsets", q, b, batch.total_q) }?;
            (begin, begin, len)
        };
        if len_q > limits.seqlen_q {
            let rule = format!("max_seqlen_q = {}", limits.seqlen_q);
            return Err(bad("q_offsets", b, begin_q, format!("at most {rule} below the next, not {len_q}")));
        }
        sequences.push(Sequence { begin_q, begin_o, begin_kv, len_q, len_kv });
    }
    Ok(sequences)
}

/// First row and number of rows of sequence `b`.
///
/// # Safety
/// `offsets` holds at least `b + 2` values.
unsafe fn range(name: &str, offsets: Indices, b: usize, total: i64) -> Result<(i64, i64)> {
    // SAFETY: the caller's promise.
    let (begin, end) = unsafe { (offsets.get(b), offsets.get(b + 1)) };
    if begin < 0 {
        return Err(bad(name, b, begin, "0 or more"));
    }
    if end < begin {
        return Err(bad(name, b + 1, end, format!("at least {name}[{b}] = {begin}")));
    }
    if end > total {
        return Err(bad(name, b + 1, end, format!("at most the {total} rows of the tensor")));
    }
    Ok((begin, end - begin))
}

fn bad(name: &str, index: usize, value: i64, rule: impl std::fmt::Display) -> Error {
    Error::new(Status::InvalidOffsets, format!("{name}[{index}] is {value}, but must be {rule}"))
}
