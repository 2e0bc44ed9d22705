//! Carving named buffers out of the caller's workspace.
//!
//! The same code counts and carves: a size query runs it without memory, so the two can never disagree.

use std::ptr::{NonNull, null_mut};

/// Alignment of the workspace and of every buffer in it, in bytes.
pub const ALIGNMENT: usize = 256;

/// Hands out aligned pieces of a workspace, or only counts them.
#[derive(Debug)]
pub struct Carver {
    base: Option<NonNull<u8>>,
    used: usize,
}

impl Carver {
    /// A carver that only counts; the pointers it gives are null.
    pub fn counting() -> Self {
        Carver { base: None, used: 0 }
    }

    /// A carver of the memory at `base`, whose size the caller has compared with a counting run.
    pub fn new(base: NonNull<u8>) -> Self {
        Carver { base: Some(base), used: 0 }
    }

    /// Room for `count` values of `T`.
    pub fn take<T>(&mut self, count: usize) -> *mut T {
        let offset = self.used;
        self.used = (offset + count * size_of::<T>()).next_multiple_of(ALIGNMENT);
        self.base.map_or(null_mut(), |base| base.as_ptr().wrapping_add(offset).cast())
    }

    /// Bytes handed out so far.
    pub fn used(&self) -> usize {
        self.used
    }
}
