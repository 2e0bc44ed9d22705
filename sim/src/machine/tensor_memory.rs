//! Shared and Tensor Memory as tcgen05 operations of one or two CTAs see them.

use super::clock::Epoch;
use super::shared::{Memo, Proxy, Who, swizzle_number};
use super::state::Cluster;
use super::tcgen05::Issue;
use crate::error::{Fault, Kind, Result};
use crate::matrix::Swizzle;
use crate::tcgen05::{Operation, Pair, pipelined, reads_first};
use crate::tmem::{COLUMNS, LANES, TensorMemory, Width};

/// Tensor Memory of a CTA, and who accessed each cell last.
#[derive(Default)]
pub struct TensorState {
    pub memory: TensorMemory,
    /// Writer and reader of each cell; empty until the first access.
    traces: Vec<[Epoch; 2]>,
}

impl TensorState {
    /// Records an access to cells of a lane, or reports one that nothing orders before it: `ordered` tells whether the
    /// access of an epoch, a read or not, came before.
    #[allow(clippy::too_many_arguments)]
    pub fn note(
        &mut self,
        lane: u32,
        column: u32,
        count: u32,
        write: bool,
        epoch: Epoch,
        ordered: &dyn Fn(Epoch, bool) -> bool,
        agents: &[String],
    ) -> Result<()> {
        if self.traces.is_empty() {
            self.traces = vec![Default::default(); (LANES * COLUMNS) as usize];
        }
        // Neighbours mostly have the same history: (before, after) of the last cell.
        let mut memo: Option<([Epoch; 2], [Epoch; 2])> = None;
        for column in column..(column + count).min(COLUMNS) {
            let trace = &mut self.traces[(lane * COLUMNS + column) as usize];
            if let Some((before, after)) = memo
                && before == *trace
            {
                *trace = after;
                continue;
            }
            let before = *trace;
            let [writer, reader] = trace;
            let clash = match () {
                () if !writer.never() && *writer != epoch && !ordered(*writer, false) => Some((*writer, "written")),
                () if write && !reader.never() && *reader != epoch && !ordered(*reader, true) => {
                    Some((*reader, "read"))
                }
                () => None,
            };
            if let Some((other, what)) = clash {
                return Fault::err(
                    Kind::Race,
                    format!(
                        "lane {lane}, column {column} of Tensor Memory was {what} by {}, and nothing that was waited for orders the two",
                        agents[other.agent() as usize]
                    ),
                );
            }
            *(if write { writer } else { reader }) = epoch;
            memo = Some((before, *trace));
        }
        Ok(())
    }
}

/// The memories of the CTAs that an operation works on.
pub struct Memories<'a> {
    cluster: &'a mut Cluster,
    issue: &'a Issue,
    first: usize,
    swizzle: u8,
    /// Of reads of shared memory, by CTA of the pair.
    memos: [Memo; 2],
    /// What the warp issued before, by number.
    operations: &'a [Option<Operation>],
}

impl<'a> Memories<'a> {
    pub fn new(
        cluster: &'a mut Cluster,
        issue: &'a Issue,
        pair: bool,
        swizzle: Option<Swizzle>,
        operations: &'a [Option<Operation>],
    ) -> Result<Self> {
        let first = if pair { issue.issuer.cta & !1 } else { issue.issuer.cta };
        if pair && first + 1 >= cluster.ctas.len() {
            return Fault::err(Kind::Exit, "cta_group::2 in a CTA without a peer");
        }
        let (swizzle, memos) = (swizzle.map_or(0, swizzle_number), Default::default());
        Ok(Memories { cluster, issue, first, swizzle, memos, operations })
    }

    fn note(&mut self, cta: usize, lane: u32, column: u32, count: u32, write: bool) -> Result<()> {
        let (issue, operations) = (self.issue, self.operations);
        // Of the warp's own earlier operations, pipelined ones are ordered without a wait.
        let ordered = |e: Epoch, read: bool| {
            issue.knows.all.covers(e)
                || e.agent() == issue.epoch.agent()
                    && match (operations.get(e.clock() as usize - 1), issue.operation) {
                        (Some(Some(first)), Some(second)) => {
                            pipelined(*first, second) || read && reads_first(*first, second)
                        }
                        _ => false,
                    }
        };
        let agents = &self.cluster.agents;
        let target = &mut self.cluster.ctas[self.first + cta];
        target.tensor.memory.check_columns((self.first + cta) as u32, column, count)?;
        target.tensor.note(lane, column, count, write, issue.epoch, &ordered, agents)
    }
}

impl Pair for Memories<'_> {
    fn read_shared(&mut self, cta: usize, address: u32) -> Result<[u8; 16]> {
        let agents = &self.cluster.agents;
        let shared = &mut self.cluster.ctas[self.first + cta].shared;
        let (epoch, knows) = (self.issue.epoch, &self.issue.knows);
        let who = Who { epoch, knows, proxy: Proxy::Async, atomic: false, swizzle: self.swizzle };
        let mut out = [0; 16];
        out.copy_from_slice(shared.read_on(address, 16, who, agents, &mut self.memos[cta])?);
        Ok(out)
    }

    fn read_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, out: &mut [u32]) -> Result<()> {
        self.note(cta, lane, column, out.len() as u32, false)?;
        let memory = &self.cluster.ctas[self.first + cta].tensor.memory;
        out.copy_from_slice(memory.row(lane, column, out.len(), width)?);
        Ok(())
    }

    fn write_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, values: &[u32]) -> Result<()> {
        self.note(cta, lane, column, values.len() as u32, true)?;
        self.cluster.ctas[self.first + cta].tensor.memory.write_row(lane, column, values, width)
    }
}
