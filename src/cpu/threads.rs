//! The threads that walk the lists.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPool;

use crate::error::{Error, Result, Status};

/// Workers of a plan: the process-wide pool, or the plan's own.
#[derive(Debug)]
pub(super) struct Threads {
    own: Option<ThreadPool>,
    workers: usize,
}

impl Threads {
    /// `workers` threads, 0 for as many as the process-wide pool has.
    ///
    /// # Errors
    /// `OutOfMemory` if they cannot be started.
    pub(super) fn new(workers: u32) -> Result<Self> {
        // One worker is the calling thread itself: no pool is needed, nor asked for its size.
        if workers == 1 {
            return Ok(Threads { own: None, workers: 1 });
        }
        let global = rayon::current_num_threads();
        let workers = if workers == 0 { global } else { workers as usize };
        let own = if workers == global {
            None
        } else {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(workers).thread_name(|i| format!("jfa-{i}"));
            let failed = |e| Error::new(Status::OutOfMemory, format!("cannot start {workers} threads: {e}"));
            Some(builder.build().map_err(failed)?)
        };
        Ok(Threads { own, workers })
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Calls `task(worker, item)` for every item; the next item goes to the first worker that is free.
    pub(super) fn for_each(&self, items: usize, task: impl Fn(usize, usize) + Sync) {
        let next = AtomicUsize::new(0);
        let work = |worker: usize| {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    break;
                }
                task(worker, item);
            }
        };
        let workers = self.workers.min(items);
        if workers <= 1 {
            return work(0);
        }
        let spread = || {
            rayon::scope(|scope| {
                for worker in 1..workers {
                    let work = &work;
                    scope.spawn(move |_| work(worker));
                }
                work(0);
            });
        };
        match &self.own {
            Some(pool) => pool.install(spread),
            None => spread(),
        }
    }
}
