//! Bulk tensor copies: boxes, swizzles, clipping, reductions.
