//! Tensor maps of jagged tensors.

use std::mem::MaybeUninit;

use cudarc::driver::sys;

use super::driver::check;
use crate::error::Result;
use crate::plan::Tensor;
use crate::problem::Dtype;

/// Columns of a panel: one swizzle atom of 128 bytes.
const PANEL: i32 = 64;

/// Boxes that hold all columns of a block of rows.
pub(super) fn panel_boxes(head_dim: i32) -> i32 {
    if head_dim % PANEL == 0 { 1 } else { (head_dim + PANEL - 1) / PANEL }
}

/// Shape of a jagged tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Rows of all sequences.
    pub rows: i64,
    /// Heads.
    pub heads: i32,
    /// Elements of one head's row.
    pub head_dim: i32,
    /// Row coordinate at which every sequence ends: no less than the longest one.
    pub ragged_end: i64,
}

/// Which columns a box holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// All, if they are whole panels.
    All,
    /// At most so many panels; one if they are not whole.
    Panels(i32),
}

/// A tensor map, aligned as the driver and the kernels' parameters want it.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// A map of `[rows, heads, head_dim]` whose boxes hold `box_rows` rows of one head and these `columns`.
    ///
    /// Its dimensions are (column, row, panel, head, end): the last has the stride of a row, and the base lies
    /// `ragged_end` rows ahead of the tensor, so that the row coordinate can count towards the end of a sequence, where
    /// boxes are clipped; see `kernels/attention/tiles.cuh`. Panels are a dimension of their own only if they are whole;
    /// else the columns are clipped too.
    pub(super) fn jagged(
        dtype: Dtype,
        tensor: &Tensor,
        shape: &Shape,
        box_rows: u32,
        columns: Columns,
    ) -> Result<Self> {
        let &Shape { rows, heads, head_dim, ragged_end } = shape;
        let size = dtype.size() as i64;
        let (row, head) = (tensor.row_stride * size, tensor.head_stride * size);
        let (width, panels) = if head_dim % PANEL == 0 { (PANEL, head_dim / PANEL) } else { (head_dim, 1) };
        let box_panels = match columns {
            Columns::All => panels,
            Columns::Panels(count) => panels.min(count),
        };
        let dimensions = [width as u64, ragged_end as u64, panels as u64, heads as u64, rows as u64 + 1];
        let strides = [row as u64, PANEL as u64 * size as u64, head as u64, row as u64];
        let boxes = [PANEL as u32, box_rows, box_panels as u32, 1, 1];
        Self::encode(dtype, tensor, row.wrapping_mul(ragged_end), dimensions, strides, boxes)
    }

    /// A map whose boxes hold `box_rows` rows of `pack` adjacent heads, heads innermost, one panel of columns: its
    /// dimensions are (column, head of the pack, row, pack, end).
    pub(super) fn packed(dtype: Dtype, tensor: &Tensor, shape: &Shape, box_rows: u32, pack: u32) -> Result<Self> {
        let &Shape { rows, heads, head_dim, ragged_end } = shape;
        let size = dtype.size() as i64;
        let (row, head) = (tensor.row_stride * size, tensor.head_stride * size);
        let packs = heads as u64 / u64::from(pack);
        let dimensions = [head_dim as u64, pack.into(), ragged_end as u64, packs, rows as u64 + 1];
        let strides = [head as u64, row as u64, head as u64 * u64::from(pack), row as u64];
        let boxes = [PANEL as u32, pack, box_rows, 1, 1];
        Self::encode(dtype, tensor, row.wrapping_mul(ragged_end), dimensions, strides, boxes)
    }

    /// A map whose base lies `ahead` bytes ahead of the tensor.
    fn encode(
        dtype: Dtype,
        tensor: &Tensor,
        ahead: i64,
        dimensions: [u64; 5],
        strides: [u64; 4],
        boxes: [u32; 5],
    ) -> Result<Self> {
        let kind = match dtype {
            Dtype::Fp16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let base = (tensor.data as i64).wrapping_sub(ahead);
        let steps = [1; 5];
        let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
        // SAFETY: all arrays have the rank that is named, and the driver initialises the map if it succeeds.
        unsafe {
            let result = sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                kind,
                5,
                base as *mut _,
                dimensions.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            );
            check(result, "cuTensorMapEncodeTiled")?;
            Ok(TensorMap(map.assume_init()))
        }
    }
}
