//! Tensor Memory.
