//! What orders tcgen05 operations (PTX ISA 9.7.16.6 and 9.7.16.12): pipelined pairs, commit, collector buffers.

use crate::error::{Fault, Kind, Result};
use crate::tma::ClusterAddress;

/// An asynchronous operation, as far as order is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `tcgen05.mma`.
    Mma {
        /// Address of D.
        d: u32,
        /// M and N.
        shape: (u32, u32),
    },
    /// `tcgen05.cp`.
    Copy {
        /// Shape `.4x256b`.
        four_rows: bool,
    },
    /// `tcgen05.shift`.
    Shift,
    /// `tcgen05.ld`.
    Load,
    /// `tcgen05.st`.
    Store,
}

/// Whether `second`, issued after `first` by the same thread with the same `cta_group`, executes after it without a
/// wait. Everything else that touches the same cells needs one.
pub fn pipelined(first: Operation, second: Operation) -> bool {
    match (first, second) {
        (Operation::Mma { d, shape }, Operation::Mma { d: next, shape: other }) => d == next && shape == other,
        (Operation::Copy { .. } | Operation::Shift, Operation::Mma { .. }) => true,
        (Operation::Shift, Operation::Copy { four_rows }) => four_rows,
        (Operation::Mma { .. }, Operation::Shift) => true,
        _ => false,
    }
}

/// Whether `first` has read its operands in Tensor Memory before `second`, issued after it by the same thread, writes.
/// Products of a thread start in the order of issue: the ISA does not promise it, but attention kernels that hardware is
/// known to run (FlashAttention-4, Triton's) let scores overwrite the probabilities that the product before reads.
pub fn reads_first(first: Operation, second: Operation) -> bool {
    matches!((first, second), (Operation::Mma { .. }, Operation::Mma { .. }))
}

impl Operation {
    /// Whether `tcgen05.commit` tracks it.
    pub const fn is_committed(self) -> bool {
        matches!(self, Operation::Mma { .. } | Operation::Copy { .. } | Operation::Shift)
    }
}

/// The mbarriers that receive one arrival each, at cluster scope, when everything that the committing thread issued with
/// the same `cta_group` has completed; at once if there is nothing.
///
/// # Errors
/// [`Kind::InvalidOperand`] for a mask that names no CTA or one outside the cluster.
pub fn commit_targets(mbarrier: ClusterAddress, mask: Option<u16>, cluster_size: u32) -> Result<Vec<ClusterAddress>> {
    match mask {
        None if mbarrier.cta >= cluster_size => Fault::err(
            Kind::InvalidOperand,
            format!("commit to an mbarrier of CTA {} of a cluster of {cluster_size}", mbarrier.cta),
        ),
        None => Ok(vec![mbarrier]),
        Some(mask) => {
            Ok(crate::tma::masked(mask, cluster_size)?.map(|cta| ClusterAddress { cta, ..mbarrier }).collect())
        }
    }
}

/// `.collector` usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum CollectorUse {
    Fill,
    Use,
    LastUse,
    #[default]
    Discard,
}

/// The collector buffers of a CTA (PTX ISA 9.7.16.10.8): buffer 0 for A, or four for B with `.ws`.
///
/// Reuse does not change results, so that only its rules are tracked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collector {
    operands: [Option<u64>; 4],
}

impl Collector {
    /// An instruction names buffer `buffer` (0 to 3) for the operand with this descriptor or address.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`] for a use without a fill, or of another operand than the one that filled the buffer.
    pub fn access(&mut self, buffer: usize, usage: CollectorUse, operand: u64) -> Result<()> {
        let Some(slot) = self.operands.get_mut(buffer) else {
            return Fault::err(Kind::InvalidOperand, format!("collector buffer {buffer}"));
        };
        if matches!(usage, CollectorUse::Use | CollectorUse::LastUse) && *slot != Some(operand) {
            return Fault::err(
                Kind::InvalidOperand,
                format!("collector buffer {buffer} is used for {operand:#x} and was filled with {slot:x?}"),
            );
        }
        *slot = match usage {
            CollectorUse::Fill | CollectorUse::Use => Some(operand),
            CollectorUse::LastUse | CollectorUse::Discard => None,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_pairs_are_pipelined() {
        let mma = |d, n| Operation::Mma { d, shape: (128, n) };
        let (copy, four) = (Operation::Copy { four_rows: false }, Operation::Copy { four_rows: true });
        let all =
            [mma(0, 128), mma(0, 64), mma(64, 128), copy, four, Operation::Shift, Operation::Load, Operation::Store];
        let mut allowed = Vec::new();
        for (i, a) in all.into_iter().enumerate() {
            allowed.extend((0..all.len()).filter(|&j| pipelined(a, all[j])).map(|j| (i, j)));
        }
        let want = [
            (0, 0),
            (0, 5),
            (1, 1),
            (1, 5),
            (2, 2),
            (2, 5),
            (3, 0),
            (3, 1),
            (3, 2),
            (4, 0),
            (4, 1),
            (4, 2),
            (5, 0),
            (5, 1),
            (5, 2),
            (5, 4),
        ];
        assert_eq!(allowed, want);
        assert!(reads_first(mma(0, 128), mma(64, 64)) && !reads_first(mma(0, 128), copy));
        assert!(four.is_committed() && !Operation::Load.is_committed() && !Operation::Store.is_committed());
    }

    #[test]
    fn commits_reach_the_masked_ctas() {
        let at = |cta| ClusterAddress { cta, offset: 8 };
        assert_eq!(commit_targets(at(1), None, 2).unwrap(), [at(1)]);
        assert_eq!(commit_targets(at(0), Some(0b1100), 4).unwrap(), [at(2), at(3)]);
        assert!(commit_targets(at(0), Some(0b1100), 2).is_err() && commit_targets(at(0), Some(0), 2).is_err());
        assert!(commit_targets(at(2), None, 2).is_err());
    }

    #[test]
    fn collector_buffers_are_filled_before_use() {
        let mut c = Collector::default();
        assert!(c.access(0, CollectorUse::Use, 5).is_err());
        c.access(0, CollectorUse::Fill, 5).unwrap();
        c.access(0, CollectorUse::Use, 5).unwrap();
        assert!(c.access(0, CollectorUse::Use, 6).is_err());
        c.access(0, CollectorUse::LastUse, 5).unwrap();
        assert!(c.access(0, CollectorUse::LastUse, 5).is_err() && c.access(4, CollectorUse::Fill, 5).is_err());
    }
}
