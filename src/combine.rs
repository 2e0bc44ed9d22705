//! The merge of partial results: O and LSE of the same queries over several parts of their keys.

use std::ffi::c_void;

use crate::error::{Error, Result, Status};
use crate::problem::{ALIGNMENT, Device, Dtype, MAX_BATCH, MAX_HEADS, MAX_ROWS, check_head_dim, in_range};
use crate::tensor::{Shape, Tensor, aligned, require};
use crate::{cpu, cuda};

/// Largest number of parts of one call: a CUDA kernel takes their addresses as parameters.
pub const MAX_PARTS: usize = 64;

/// What attention to one part of the keys gave.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its output.
    pub o: Tensor,
    /// Its log-sum-exp.
    pub lse: *const f32,
}

/// One merge. `O = sum of exp(LSE_i - LSE) O_i` with `LSE = log(sum of exp(LSE_i))`, row by row.
#[derive(Clone, Debug)]
pub struct Combine {
    /// Where it runs.
    pub device: Device,
    /// Type of the merged O.
    pub dtype: Dtype,
    /// Type of the parts' O: `dtype` or `Fp32`.
    pub part_dtype: Dtype,
    /// Query heads.
    pub heads: i32,
    /// Elements of one head's row.
    pub head_dim: i32,
    /// Blocks of rows, each with an LSE `[heads, rows]` of its own: 1 for packed Q.
    pub batch: i64,
    /// Rows of a block.
    pub rows: i64,
    /// At least one.
    pub parts: Vec<Part>,
    /// Merged output, `[batch * rows, heads, head_dim]`.
    pub o: Tensor,
    /// Merged log-sum-exp, `[batch, heads, rows]`, or null.
    pub lse: *mut f32,
}

impl Combine {
    /// Checks every argument, then merges: at once on the CPU, by a launch on `stream` on a CUDA device.
    ///
    /// # Safety
    /// Every pointer is valid on the device for the rows that the sizes name, and so is `stream`.
    ///
    /// # Errors
    /// What is wrong with an argument; nothing is written then.
    pub unsafe fn run(mut self, stream: *mut c_void) -> Result<()> {
        self.check()?;
        if self.total_rows() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; strides, alignment and overlaps are checked.
        unsafe {
            match self.device {
                Device::Cpu => cpu::combine(&self),
                Device::Cuda(ordinal) => cuda::combine(&self, ordinal, stream),
            }
        }
    }

    /// Rows of O.
    pub fn total_rows(&self) -> i64 {
        self.batch * self.rows
    }

    /// Checks all rules and fills in default strides.
    fn check(&mut self) -> Result<()> {
        in_range("heads", self.heads.into(), 1, MAX_HEADS.into())?;
        check_head_dim(self.head_dim)?;
        if self.part_dtype != self.dtype && self.part_dtype != Dtype::Fp32 {
            let rule = "JFA_DTYPE_UNSPECIFIED, dtype, or JFA_DTYPE_FP32";
            return Err(Error::invalid("part_dtype", format!("{:?}", self.part_dtype), rule));
        }
        in_range("batch", self.batch, 0, MAX_BATCH)?;
        in_range("rows", self.rows, 0, MAX_ROWS)?;
        if self.total_rows() > MAX_ROWS {
            return Err(Error::invalid("batch * rows", self.total_rows(), "at most 2^40"));
        }
        let shape = self.shape();
        let mut spans = Vec::with_capacity(2 * self.parts.len());
        for (i, part) in self.parts.clone().iter().enumerate() {
            let name = format!("parts[{i}]");
            self.parts[i].o = part.o.with_default_strides(&format!("{name}.o"), self.part_dtype, &shape)?;
            spans.push(self.tensor_span(format!("{name}.o"), &self.parts[i].o, self.part_dtype)?);
            spans.push(self.lse_span(format!("{name}.lse"), part.lse)?);
        }
        self.o = self.o.with_default_strides("o", self.dtype, &shape)?;
        let o = self.tensor_span("o".into(), &self.o, self.dtype)?;
        self.o.check_disjoint_rows("o", &shape)?;
        let mut outputs = vec![o];
        if !self.lse.is_null() {
            outputs.push(self.lse_span("lse".into(), self.lse)?);
        }
        for (i, output) in outputs.iter().enumerate() {
            if let Some(other) = spans.iter().chain(&outputs[i + 1..]).find(|other| output.overlaps(other)) {
                let message = format!("{} overlaps {}, but outputs must not share memory", output.name, other.name);
                return Err(Error::new(Status::InvalidArgument, message));
            }
        }
        Ok(())
    }

    fn shape(&self) -> Shape {
        Shape { rows: self.total_rows(), heads: self.heads.into(), head_dim: self.head_dim.into() }
    }

    fn tensor_span(&self, name: String, t: &Tensor, dtype: Dtype) -> Result<Span> {
        if self.total_rows() == 0 {
            return Ok(Span { name, begin: 0, end: 0 });
        }
        let last = i128::from(self.total_rows() - 1) * i128::from(t.row_stride)
            + i128::from(self.heads - 1) * i128::from(t.head_stride);
        let bytes = (last + i128::from(self.head_dim)) * dtype.size() as i128;
        span(name, t.data, bytes, ALIGNMENT)
    }

    fn lse_span(&self, name: String, lse: *const f32) -> Result<Span> {
        if self.total_rows() == 0 {
            return Ok(Span { name, begin: 0, end: 0 });
        }
        let bytes = i128::from(self.total_rows()) * i128::from(self.heads) * size_of::<f32>() as i128;
        span(name, lse.cast(), bytes, size_of::<f32>())
    }
}

/// The bytes from the first to the last element of a tensor.
struct Span {
    name: String,
    begin: i128,
    end: i128,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.begin.max(other.begin) < self.end.min(other.end)
    }
}

fn span(name: String, data: *const c_void, bytes: i128, alignment: usize) -> Result<Span> {
    require(data, &name)?;
    aligned(&name, data as usize, alignment)?;
    let begin = data as usize as i128;
    Ok(Span { name, begin, end: begin + bytes })
}
