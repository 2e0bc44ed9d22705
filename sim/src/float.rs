//! Narrow floating-point formats and approximate functions.
