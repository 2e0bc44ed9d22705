//! Warpgroup matrix multiply-accumulate.
