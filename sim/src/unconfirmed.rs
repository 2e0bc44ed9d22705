//! What the PTX ISA leaves open and no other source settles.

use crate::error::{Fault, Kind, Result};

/// How to treat an operation whose exact effect is not established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unconfirmed {
    /// Report it as [`Kind::Unsupported`].
    #[default]
    Refuse,
    /// Go on with the assumption that the module documents.
    Assume,
}

impl Unconfirmed {
    /// Passes under `Assume`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] under `Refuse`, with the question `what`.
    pub fn check(self, what: &str) -> Result<()> {
        match self {
            Unconfirmed::Assume => Ok(()),
            Unconfirmed::Refuse => {
                Fault::err(Kind::Unsupported, format!("{what}: the effect on hardware is not established"))
            }
        }
    }
}
