//! What is wrong with a program, and where.

use std::fmt;

/// The class of a fault: what a test asks for, and what a report begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// PTX text or a container that cannot be read.
    Malformed,
    /// An instruction, qualifier or mode that cudasim does not model.
    Unsupported,
    /// An operand that the instruction does not allow.
    InvalidOperand,
    /// Access outside an allocation, or to the wrong window.
    OutOfBounds,
    /// Address not a multiple of the access.
    Misaligned,
    /// Read of memory, TMEM or a register that nothing wrote.
    Uninitialised,
    /// Two accesses, one of them a write, that nothing orders.
    Race,
    /// Generic and async accesses without the proxy fence between them.
    MissingProxyFence,
    /// Operand or result of an asynchronous operation touched before it was waited for.
    NotWaited,
    /// Misuse of an mbarrier object.
    Mbarrier,
    /// Misuse of a named or cluster barrier.
    Barrier,
    /// `.aligned` or `.sync` with lanes or warps missing.
    Divergence,
    /// A tensor map that the driver refuses, or that an instruction cannot use.
    TensorMap,
    /// A matrix descriptor, an instruction descriptor, or their operands.
    Descriptor,
    /// Misuse of Tensor Memory: allocation, lanes, columns.
    Tmem,
    /// Misuse of `setmaxnreg`.
    Registers,
    /// Misuse of `clusterlaunchcontrol`.
    ClusterLaunch,
    /// An exit that leaves work, signals or memory of others behind.
    Exit,
    /// A launch beyond the limits of the device or of the kernel.
    Launch,
    /// Nothing can ever run again.
    Deadlock,
    /// `trap`, or a limit of the simulation.
    Trap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Kind::Malformed => "malformed input",
            Kind::Unsupported => "not modelled",
            Kind::InvalidOperand => "invalid operand",
            Kind::OutOfBounds => "out of bounds",
            Kind::Misaligned => "misaligned access",
            Kind::Uninitialised => "uninitialised read",
            Kind::Race => "data race",
            Kind::MissingProxyFence => "missing proxy fence",
            Kind::NotWaited => "asynchronous result not waited for",
            Kind::Mbarrier => "mbarrier misuse",
            Kind::Barrier => "barrier misuse",
            Kind::Divergence => "divergence",
            Kind::TensorMap => "tensor map",
            Kind::Descriptor => "descriptor",
            Kind::Tmem => "tensor memory misuse",
            Kind::Registers => "setmaxnreg misuse",
            Kind::ClusterLaunch => "clusterlaunchcontrol misuse",
            Kind::Exit => "early exit",
            Kind::Launch => "launch",
            Kind::Deadlock => "deadlock",
            Kind::Trap => "trap",
        })
    }
}

/// Where a fault happened. Modules that know no place leave it to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Kernel.
    pub kernel: String,
    /// Line of the PTX text, counted from 1; 0 if unknown.
    pub ptx_line: u32,
    /// That line.
    pub ptx: String,
    /// Source file and line, where the PTX has line information.
    pub source: Option<(String, u32)>,
    /// CTA index in the grid.
    pub cta: [u32; 3],
    /// Warp of the CTA.
    pub warp: u32,
    /// Lane, where one is at fault.
    pub lane: Option<u32>,
}

/// One fault of a program.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its class.
    pub kind: Kind,
    /// What is wrong, in words, with the values at fault.
    pub message: String,
    /// Where; the innermost caller that knows adds it.
    pub place: Option<Box<Place>>,
}

/// Result of everything that executes or decodes.
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A fault whose place the caller adds.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault { kind, message: message.into(), place: None }
    }

    /// Shorthand for `Err(Fault::new(kind, message))`.
    ///
    /// # Errors
    /// Always.
    pub fn err<T>(kind: Kind, message: impl Into<String>) -> Result<T> {
        Err(Fault::new(kind, message))
    }

    /// Adds the place unless a deeper caller has.
    #[must_use]
    pub fn at(mut self, place: impl FnOnce() -> Place) -> Self {
        self.place.get_or_insert_with(|| Box::new(place()));
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        let Some(place) = &self.place else { return Ok(()) };
        write!(f, "\n  in {}", place.kernel)?;
        let [x, y, z] = place.cta;
        write!(f, ", CTA ({x}, {y}, {z}), warp {}", place.warp)?;
        if let Some(lane) = place.lane {
            write!(f, ", lane {lane}")?;
        }
        if place.ptx_line != 0 {
            write!(f, "\n  PTX line {}: {}", place.ptx_line, place.ptx.trim())?;
        }
        if let Some((file, line)) = &place.source {
            write!(f, "\n  source {file}:{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
