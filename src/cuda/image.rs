//! The kernels' images, embedded by build.rs: machine code and PTX of every translation unit.

use crate::error::{Error, Result, Status};

#[repr(C, align(64))]
#[cfg(feature = "cuda")]
struct Aligned<const N: usize>([u8; N]);

static IMAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// A generation of GPUs that has kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// Hopper.
    Sm90,
    /// Blackwell of data centres.
    Sm100,
}

impl Architecture {
    /// Those that this build holds kernels for.
    pub(super) fn built() -> impl Iterator<Item = Self> {
        [Architecture::Sm90, Architecture::Sm100].into_iter().filter(|a| !a.target().is_empty())
    }

    /// What nvcc compiled for: "90a", "100f" and the like; empty if nothing was.
    pub(super) fn target(self) -> &'static str {
        let prefix = match self {
            Architecture::Sm90 => "90",
            Architecture::Sm100 => "100",
        };
        env!("JFA_BUILT_ARCHS").split(' ').find(|target| target.starts_with(prefix)).unwrap_or_default()
    }

    /// The architecture whose kernels run on a device of this compute capability.
    pub(super) fn of((major, minor): (i32, i32)) -> Option<Self> {
        Self::built().find(|a| match a {
            Architecture::Sm90 => (major, minor) == (9, 0),
            Architecture::Sm100 if a.target().ends_with('f') => major == 10,
            Architecture::Sm100 => (major, minor) == (10, 0),
        })
    }

    /// For error messages.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Architecture::Sm90 => "9.0 (Hopper)",
            Architecture::Sm100 if self.target().ends_with('f') => "10.x (Blackwell)",
            Architecture::Sm100 => "10.0 (Blackwell)",
        }
    }
}

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
