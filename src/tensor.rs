//! Tensors as callers describe them, and what every function of the C API checks about one.

use std::ffi::c_void;

use crate::error::{Error, Result, Status};
use crate::problem::{ALIGNMENT, Dtype};

/// Largest stride, in elements.
const MAX_STRIDE: i64 = 1 << 40;

/// A tensor of rows x heads x head_dim elements whose last dimension is contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// First element.
    pub data: *mut c_void,
    /// Elements from one row to the next.
    pub row_stride: i64,
    /// Elements from one head to the next.
    pub head_stride: i64,
}

// SAFETY: a tensor is only a description; who dereferences it answers for the access.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}

/// Shape of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub rows: i64,
    pub heads: i64,
    pub head_dim: i64,
}

impl Tensor {
    /// Fills in default strides (0: contiguous `[rows, heads, head_dim]`) and neutralises those that are never used.
    pub(crate) fn with_default_strides(mut self, name: &str, dtype: Dtype, shape: &Shape) -> Result<Tensor> {
        let &Shape { rows, heads, head_dim } = shape;
        if self.head_stride == 0 || heads == 1 {
            self.head_stride = head_dim;
        }
        if self.row_stride == 0 || rows <= 1 {
            self.row_stride = heads * head_dim;
        }
        for (field, stride) in [("row_stride", self.row_stride), ("head_stride", self.head_stride)] {
            if !(head_dim..=MAX_STRIDE).contains(&stride) {
                let name = format!("{name}.{field}");
                return Err(Error::invalid(&name, stride, format!("0 (contiguous) or head_dim = {head_dim} to 2^40")));
            }
            if !(stride as usize * dtype.size()).is_multiple_of(ALIGNMENT) {
                let message =
                    format!("{name}.{field} is {stride} elements, but must be a multiple of {ALIGNMENT} bytes");
                return Err(Error::new(Status::Misaligned, message));
            }
        }
        Ok(self)
    }

    /// The rows of an output must not share an element, whichever of rows and heads lies inside the other.
    pub(crate) fn check_disjoint_rows(&self, name: &str, shape: &Shape) -> Result<()> {
        let (rows, heads, head_dim) = (i128::from(shape.rows), i128::from(shape.heads), i128::from(shape.head_dim));
        let (row_stride, head_stride) = (i128::from(self.row_stride), i128::from(self.head_stride));
        let disjoint =
            (heads - 1) * head_stride + head_dim <= row_stride || (rows - 1) * row_stride + head_dim <= head_stride;
        if rows > 1 && heads > 1 && !disjoint {
            let message = format!(
                "{name} has row_stride {row_stride} and head_stride {head_stride}, so that its rows overlap; an output \
                 needs disjoint rows"
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(())
    }
}

/// Refuses a null pointer.
pub(crate) fn require(pointer: *const c_void, name: &str) -> Result<()> {
    match pointer.is_null() {
        true => Err(Error::new(Status::NullPointer, format!("{name} is null"))),
        false => Ok(()),
    }
}

/// Refuses an address that is no multiple of `alignment` bytes.
pub(crate) fn aligned(name: &str, address: usize, alignment: usize) -> Result<()> {
    match address % alignment {
        0 => Ok(()),
        _ => {
            let message = format!("{name} is {address:#x}, but must be aligned to {alignment} bytes");
            Err(Error::new(Status::Misaligned, message))
        }
    }
}
