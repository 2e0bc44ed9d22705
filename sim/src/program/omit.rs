//! Leaves out one instruction that orders others, to see whether its absence is noticed.

use super::decode::Kernel;
use super::op::Op;
use super::operation::{MbarrierOp, TensorOp};

/// Whether the instruction is there for the order that it makes.
fn orders(op: &Op) -> bool {
    match op {
        Op::Mbarrier { op, .. } => !matches!(op, MbarrierOp::Init { .. } | MbarrierOp::Invalidate),
        Op::Tensor(op) => matches!(**op, TensorOp::Commit { .. }),
        Op::Fence { .. }
        | Op::FenceMbarrierInit
        | Op::WarpSync { .. }
        | Op::Barrier { .. }
        | Op::ClusterArrive { .. }
        | Op::ClusterWait
        | Op::BulkCommit
        | Op::BulkWait { .. }
        | Op::CopyAsyncCommit
        | Op::CopyAsyncWait { .. }
        | Op::TensorWait { .. }
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait { .. } => true,
        _ => false,
    }
}

impl Kernel {
    /// Turns the ordering instruction of this number into one without effect; its PTX line, or `Err` with how many there
    /// are. A wait for an mbarrier then succeeds at once.
    pub fn omit(&mut self, number: usize) -> Result<u32, usize> {
        let count = self.code.iter().filter(|inst| orders(&inst.op)).count();
        let inst = self.code.iter_mut().filter(|inst| orders(&inst.op)).nth(number).ok_or(count)?;
        inst.op = match &inst.op {
            Op::Mbarrier { op: MbarrierOp::Wait { done, .. }, .. } => Op::Omitted { done: *done },
            _ => Op::Omitted { done: None },
        };
        Ok(inst.line)
    }
}
