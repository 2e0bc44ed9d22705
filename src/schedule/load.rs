//! How evenly a schedule spreads the work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Work of every worker, in any unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Load(pub Vec<u64>);

impl Load {
    /// Adds up the cost of each worker's tiles.
    pub fn of<T>(workers: u32, tiles: impl Fn(u32) -> T, cost: impl Fn(T::Item) -> u64) -> Self
    where
        T: Iterator,
    {
        Load((0..workers).map(|w| tiles(w).map(&cost).sum()).collect())
    }

    /// The load when each further cost goes to the worker that has least when its turn comes.
    #[must_use]
    pub fn and_in_turn(self, costs: impl IntoIterator<Item = u64>) -> Self {
        let Load(mut load) = self;
        let mut heap: BinaryHeap<_> = (0..).zip(&load).map(|(w, &sum)| Reverse((sum, w))).collect();
        for cost in costs {
            if let Some(Reverse((sum, worker))) = heap.pop() {
                load[worker] = sum + cost;
                heap.push(Reverse((sum + cost, worker)));
            }
        }
        Load(load)
    }

    /// Load of the busiest worker.
    pub fn max(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Load of the busiest worker over the mean; 1 when there is no work.
    pub fn imbalance(&self) -> f64 {
        if self.max() == 0 { 1.0 } else { self.max() as f64 / self.mean() }
    }

    /// Mean over the workers.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64
    }
}

/// The load when each tile, longest first, goes to the worker that has least: the yardstick of a static schedule.
pub fn greedy_longest_first(mut costs: Vec<u64>, workers: u32) -> Load {
    costs.sort_unstable_by(|a, b| b.cmp(a));
    Load(vec![0; workers as usize]).and_in_turn(costs)
}
