//! Cluster launch control (PTX ISA 9.7.13.17 and 9.7.13.18): running clusters take over clusters that have not started.

use std::collections::VecDeque;

use crate::error::{Fault, Kind, Result};

/// Bytes of a response, which is also its alignment and what it adds to the transactions of the mbarrier.
pub const RESPONSE_BYTES: u32 = 16;
/// Marks a response, so that other memory is not taken for one.
const TAG: u32 = 0x0C1C_51A1;

/// The answer to `try_cancel`: the first CTA of the withdrawn cluster, or that none was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response(pub Option<[u32; 3]>);

impl Response {
    /// The 16 bytes that the async proxy writes; opaque to programs.
    pub fn encode(self) -> [u8; 16] {
        let [x, y, z] = self.0.unwrap_or_default();
        let words = [x, y | z << 16, TAG, self.0.is_some() as u32];
        let mut bytes = [0; 16];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Response::encode`] wrote.
    ///
    /// # Errors
    /// [`Kind::ClusterLaunch`] if the operand is no response.
    pub fn decode(bytes: &[u8; 16]) -> Result<Self> {
        let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        match (word(8), word(12)) {
            (TAG, 0) => Ok(Response(None)),
            (TAG, 1) => Ok(Response(Some([word(0), word(4) & 0xFFFF, word(4) >> 16]))),
            _ => Fault::err(
                Kind::ClusterLaunch,
                format!("query_cancel of {:#034x}, which no try_cancel wrote", u128::from_le_bytes(*bytes)),
            ),
        }
    }

    /// `query_cancel.is_canceled`.
    pub fn is_canceled(self) -> bool {
        self.0.is_some()
    }

    /// `query_cancel.get_first_ctaid`.
    ///
    /// # Errors
    /// [`Kind::ClusterLaunch`] on the response of a request that failed.
    pub fn first_ctaid(self) -> Result<[u32; 3]> {
        match self.0 {
            Some(id) => Ok(id),
            None => Fault::err(Kind::ClusterLaunch, "get_first_ctaid of a response that says no cluster was canceled"),
        }
    }
}

/// Clusters of a grid that have neither started nor been withdrawn.
#[derive(Clone, Debug)]
pub struct Clusters {
    waiting: VecDeque<[u32; 3]>,
}

impl Clusters {
    /// All clusters of a grid, x fastest.
    ///
    /// # Errors
    /// [`Kind::Launch`] for an empty grid or cluster, a grid that is no multiple of the cluster, y or z above 65535.
    pub fn new(grid: [u32; 3], cluster: [u32; 3]) -> Result<Self> {
        for axis in 0..3 {
            if grid[axis] == 0 || cluster[axis] == 0 || !grid[axis].is_multiple_of(cluster[axis]) {
                return Fault::err(Kind::Launch, format!("grid {grid:?} is no multiple of the cluster {cluster:?}"));
            }
        }
        if grid[1] > 0xFFFF || grid[2] > 0xFFFF {
            return Fault::err(Kind::Launch, format!("grid {grid:?}: y and z are at most 65535"));
        }
        let steps = |axis: usize| (0..grid[axis]).step_by(cluster[axis] as usize);
        let waiting = steps(2).flat_map(|z| steps(1).flat_map(move |y| steps(0).map(move |x| [x, y, z]))).collect();
        Ok(Clusters { waiting })
    }

    /// Clusters that neither started nor were withdrawn.
    pub fn remaining(&self) -> usize {
        self.waiting.len()
    }

    /// The launcher starts the next cluster: its first CTA.
    pub fn start(&mut self) -> Option<[u32; 3]> {
        self.waiting.pop_front()
    }

    /// A `try_cancel` takes one: the `choice`-th of those that wait (modulo their number), since the order of the
    /// hand-out is not specified.
    pub fn cancel(&mut self, choice: usize) -> Response {
        let count = self.waiting.len();
        Response(if count == 0 { None } else { self.waiting.remove(choice % count) })
    }
}

/// What a CTA has learnt of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    failure_seen: bool,
}

impl Requests {
    /// Before a `try_cancel`.
    ///
    /// # Errors
    /// [`Kind::ClusterLaunch`] once the CTA has seen one fail.
    pub fn check_submit(&self) -> Result<()> {
        if self.failure_seen {
            return Fault::err(Kind::ClusterLaunch, "try_cancel after the CTA has seen one fail");
        }
        Ok(())
    }

    /// After a `query_cancel.is_canceled`.
    pub fn observe(&mut self, response: Response) {
        self.failure_seen |= !response.is_canceled();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_survive_memory() {
        for response in [Response(None), Response(Some([0, 0, 0])), Response(Some([1 << 30, 65535, 65534]))] {
            assert_eq!(Response::decode(&response.encode()).unwrap(), response);
        }
        assert_eq!(Response::decode(&[0; 16]).unwrap_err().kind, Kind::ClusterLaunch);
        assert_eq!(Response(None).first_ctaid().unwrap_err().kind, Kind::ClusterLaunch);
    }

    #[test]
    fn every_cluster_is_handed_out_once() {
        let mut clusters = Clusters::new([4, 6, 2], [2, 3, 1]).unwrap();
        assert_eq!(clusters.remaining(), 8);
        let mut seen = vec![clusters.start().unwrap()];
        assert_eq!(seen[0], [0, 0, 0]);
        for choice in 0.. {
            match clusters.cancel(choice * 5).0 {
                Some(id) => seen.push(id),
                None => break,
            }
        }
        assert_eq!(clusters.start(), None);
        seen.sort_unstable();
        let mut want: Vec<_> = [0, 2]
            .iter()
            .flat_map(|&x| [0, 3].map(move |y| [x, y]))
            .flat_map(|[x, y]| [0, 1].map(|z| [x, y, z]))
            .collect();
        want.sort_unstable();
        assert_eq!(seen, want);
        assert!(Clusters::new([3, 1, 1], [2, 1, 1]).is_err() && Clusters::new([0, 1, 1], [1, 1, 1]).is_err());
        assert!(Clusters::new([1, 65536, 1], [1, 1, 1]).is_err());
    }

    #[test]
    fn no_request_follows_a_failure_that_was_seen() {
        let mut requests = Requests::default();
        requests.observe(Response(Some([0; 3])));
        requests.check_submit().unwrap();
        requests.observe(Response(None));
        assert_eq!(requests.check_submit().unwrap_err().kind, Kind::ClusterLaunch);
    }
}
