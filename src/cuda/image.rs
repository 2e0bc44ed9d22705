//! The kernels' images, embedded by build.rs: machine code and PTX of every translation unit.

use crate::error::{Error, Result, Status};

#[repr(C, align(64))]
#[cfg(feature = "cuda")]
struct Aligned<const N: usize>([u8; N]);

static IMAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Whether this build holds any kernel.
pub(super) fn any() -> bool {
    !IMAGES.is_empty()
}

/// The image of a translation unit.
///
/// # Errors
/// `Unsupported` if this build does not hold it.
pub(super) fn find(name: &str) -> Result<&'static [u8]> {
    let image = IMAGES.iter().find(|(unit, _)| *unit == name).map(|&(_, image)| image);
    image.ok_or_else(|| Error::new(Status::Unsupported, format!("this build of jfa holds no kernel {name}")))
}
