//! A PTX module with its names resolved.

use super::Special;

/// State space of a variable or an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Generic,
    Global,
    Shared,
    SharedCluster,
    Local,
    Param,
    Const,
}

/// A register, by index into `Entry::registers`.
pub type Register = u32;

#[derive(Clone, Debug)]
pub enum Operand {
    Register(Register),
    /// `!p`.
    Not(Register),
    /// `p|q`; a sink is `None`.
    Pair(Option<Register>, Option<Register>),
    /// Bits of an integer or of a hexadecimal float.
    Immediate(u64),
    Float(f64),
    Special(Special),
    /// Address of a variable, in its own space.
    Symbol(Symbol, i64),
    Vector(Vec<Operand>),
    /// `[base + offset, {coordinates}]`.
    Address(Box<Operand>, i64, Vec<Operand>),
    Label(u32),
    /// `_`.
    Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Byte offset of a kernel parameter.
    Param(u32),
    /// Byte offset in the static shared memory of the kernel.
    Shared(u32),
    /// Start of dynamic shared memory.
    Dynamic,
    /// Byte offset in the local memory of a thread.
    Local(u32),
    /// Index into `Module::globals`.
    Global(u32),
}

#[derive(Clone, Debug)]
pub struct Instruction {
    /// Predicate and whether it is negated.
    pub guard: Option<(Register, bool)>,
    /// Opcode with its qualifiers.
    pub opcode: String,
    pub operands: Vec<Operand>,
    /// PTX line.
    pub line: u32,
    /// Source file index and line.
    pub source: (u32, u32),
}

/// Type of a register: bits, and whether it is a predicate (bits 1).
pub type Bits = u8;

#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub name: String,
    /// Bytes of all parameters.
    pub param_bytes: u32,
    /// Offset and size of each parameter.
    pub params: Vec<(u32, u32)>,
    /// Name and width of each register.
    pub registers: Vec<(String, Bits)>,
    pub instructions: Vec<Instruction>,
    /// Instruction index of each label.
    pub labels: Vec<u32>,
    pub shared_bytes: u32,
    pub local_bytes: u32,
    /// Alignment of dynamic shared memory.
    pub dynamic_align: u32,
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    pub required_cluster: Option<[u32; 3]>,
    pub min_ctas: Option<u32>,
    pub max_registers: Option<u32>,
}

/// A `.global` or `.const` variable.
#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    pub bytes: u32,
    pub initial: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub version: (u32, u32),
    pub target: String,
    pub entries: Vec<Entry>,
    pub globals: Vec<Global>,
    pub files: Vec<(u32, String)>,
}
