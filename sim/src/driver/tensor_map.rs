//! `cuTensorMapEncodeTiled`.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::CUresult;

use super::{Driver, call};
use crate::tensor_map::EncodeTiled;

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut c_void,
    data_type: c_uint,
    rank: c_uint,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    box_dims: *const u32,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle: c_uint,
    l2: c_uint,
    fill: c_uint,
) -> CUresult {
    call("cuTensorMapEncodeTiled", |driver| {
        let pointers = [dims.cast::<c_void>(), box_dims.cast(), element_strides.cast()];
        let unusable =
            map.is_null() || rank > 5 || pointers.iter().any(|p| p.is_null()) || rank > 1 && strides.is_null();
        if unusable {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let count = rank as usize;
        // SAFETY: the caller's arrays have as many entries as the rank says, strides one less.
        let request = unsafe {
            EncodeTiled {
                object: map as u64,
                data_type,
                rank,
                address: address as u64,
                dims: std::slice::from_raw_parts(dims, count),
                strides: if count > 1 { std::slice::from_raw_parts(strides, count - 1) } else { &[] },
                box_dims: std::slice::from_raw_parts(box_dims, count),
                element_strides: std::slice::from_raw_parts(element_strides, count),
                interleave,
                swizzle,
                l2,
                fill,
                blackwell: driver.model.capability.0 >= 10,
            }
        };
        let encoded = request.encode().map_err(|fault| Driver::refuse("cuTensorMapEncodeTiled", &fault))?;
        let bytes = encoded.to_bytes();
        // SAFETY: the caller's map is 128 bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.cast(), bytes.len()) };
        Ok(())
    })
}
