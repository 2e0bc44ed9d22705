//! Exact attention over jagged (packed, variable-length) sequences behind a C ABI.
//!
//! One idea runs through the crate: a [`problem::Problem`] says *what* is computed, a [`schedule`] says *in which
//! order*, tile by tile, and a backend says *how*. Data flows one way: C struct, validated `Problem`, [`plan::Plan`]
//! (schedule, workspace layout, kernels), launch.
//!
//! The product is the C library; the Rust items are public for the tests and tools of this repository and carry no
//! promise of stability.

pub mod capi;
pub mod combine;
pub mod cpu;
pub mod cuda;
pub mod error;
pub mod logging;
pub mod plan;
pub mod problem;
pub mod schedule;
pub mod tensor;
pub mod workspace;
