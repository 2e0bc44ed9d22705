//! From the syntax tree of a kernel to its decoded form.

use std::collections::HashMap;

use super::alu::Modes;
use super::op::{Constant, Inst, Op, Pred, Slot};
use super::operation::LogicOp;
use super::registers::{Slots, assign, visit};
use super::types::Type;
use super::{matrix, memory, sync};
use crate::error::{Fault, Kind, Result};
use crate::ptx::ast::{Entry, Instruction, Operand};

/// A kernel that can run.
#[derive(Debug)]
pub struct Kernel {
    pub entry: Entry,
    pub code: Vec<Inst>,
    /// Value registers of a warp, with the constants.
    pub slots: u32,
    pub predicates: u32,
    pub constants: Vec<(Slot, Constant)>,
    /// The lines of the module.
    pub text: std::sync::Arc<Vec<String>>,
    pub files: Vec<(u32, String)>,
    /// Uses Tensor Memory.
    pub tensor: bool,
}

/// What the decoders of single instructions share.
pub struct Decoder<'a> {
    entry: &'a Entry,
    slots: Slots,
    constants: HashMap<Constant, Slot>,
}

/// One instruction, split.
pub struct Parts<'a> {
    pub root: &'a str,
    pub modes: Modes<'a>,
    pub operands: &'a [Operand],
    pub opcode: &'a str,
}

/// Decodes a kernel.
///
/// # Errors
/// `Malformed` or `Unsupported` with the PTX line.
pub fn decode(entry: Entry, text: std::sync::Arc<Vec<String>>, files: Vec<(u32, String)>) -> Result<Kernel> {
    let slots = assign(&entry);
    let predicates = slots.predicates;
    let mut decoder = Decoder { entry: &entry, slots, constants: HashMap::new() };
    let mut code = Vec::with_capacity(entry.instructions.len() + 1);
    for instruction in &entry.instructions {
        let op = decoder.instruction(instruction).map_err(|fault| {
            let line = text.get(instruction.line as usize - 1).map_or("", |l| l.trim());
            Fault { message: format!("PTX line {}: {}: {line}", instruction.line, fault.message), ..fault }
        })?;
        let guard = instruction.guard.map(|(p, negate)| (decoder.slots.of[p as usize], negate));
        code.push(Inst { guard, op, line: instruction.line, source: instruction.source });
    }
    one_group(&code)?;
    let last = entry.instructions.last();
    let (line, source) = last.map_or((0, (0, 0)), |i| (i.line, i.source));
    code.push(Inst { guard: None, op: Op::Exit, line, source });
    let constants = decoder.constants.iter().map(|(c, s)| (*s, *c)).collect();
    let slots = decoder.slots.values;
    let tensor = code.iter().any(|inst| matches!(inst.op, Op::Tensor(_)));
    Ok(Kernel { tensor, code, slots, predicates, constants, text, files, entry })
}

/// A kernel uses one `.cta_group` throughout (PTX ISA, "tcgen05 instructions").
fn one_group(code: &[Inst]) -> Result<()> {
    let group = |inst: &Inst| match &inst.op {
        Op::Tensor(op) => op.pair(),
        _ => None,
    };
    let mut groups = code.iter().filter_map(|inst| group(inst).map(|pair| (pair, inst.line)));
    let first = groups.next().map(|(pair, _)| pair);
    match groups.find(|(pair, _)| Some(*pair) != first) {
        Some((_, line)) => {
            malformed(&format!("PTX line {line}: another .cta_group than the tcgen05 instructions before"))
        }
        None => Ok(()),
    }
}

pub fn unsupported<T>(what: &str) -> Result<T> {
    Fault::err(Kind::Unsupported, what)
}

pub fn malformed<T>(what: &str) -> Result<T> {
    Fault::err(Kind::Malformed, what)
}

impl<'a> Parts<'a> {
    pub fn operand(&self, index: usize) -> Result<&'a Operand> {
        match self.operands.get(index) {
            Some(operand) => Ok(operand),
            None => malformed("an operand is missing"),
        }
    }

    pub fn has(&self, mode: &str) -> bool {
        self.modes.has(mode)
    }

    /// The type: the last qualifier that names one.
    pub fn ty(&self) -> Result<Type> {
        match self.modes.0.iter().rev().find_map(|m| Type::parse(m)) {
            Some(t) => Ok(t),
            None => malformed("the type is missing"),
        }
    }

    pub fn immediate(&self, index: usize) -> Result<u64> {
        match self.operand(index)? {
            Operand::Immediate(value) => Ok(*value),
            _ => malformed("an immediate is required"),
        }
    }

    /// Refuses qualifiers other than these.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        match self.modes.0.iter().find(|m| !known.contains(*m) && Type::parse(m).is_none()) {
            Some(mode) => unsupported(&format!("qualifier .{mode}")),
            None => Ok(()),
        }
    }
}

impl Decoder<'_> {
    pub fn constant(&mut self, constant: Constant) -> Slot {
        let slots = &mut self.slots;
        *self.constants.entry(constant).or_insert_with(|| {
            slots.values += 1;
            slots.values - 1
        })
    }

    fn width(&self, register: u32) -> u8 {
        self.entry.registers[register as usize].1
    }

    /// The slot of a value; immediates become constants of type `t`.
    pub fn value(&mut self, operand: &Operand, t: Type) -> Result<Slot> {
        Ok(match operand {
            Operand::Register(r) if self.width(*r) == 1 => return malformed("a predicate where a value is expected"),
            Operand::Register(r) => self.slots.of[*r as usize],
            Operand::Immediate(value) => {
                let value = if t.bits() < 64 { value & u64::MAX >> (64 - t.bits().max(8)) } else { *value };
                self.constant(Constant::Value(value))
            }
            Operand::Float(value) => self.constant(Constant::Value(match t {
                Type::F64 => value.to_bits(),
                _ => (*value as f32).to_bits().into(),
            })),
            Operand::Special(special) if !special.varies() => self.constant(Constant::Special(*special)),
            Operand::Symbol(symbol, offset) => self.constant(Constant::Symbol(*symbol, *offset)),
            _ => return malformed("a value is expected"),
        })
    }

    /// The slot of a 32-bit value.
    pub fn word(&mut self, operand: &Operand) -> Result<Slot> {
        self.value(operand, Type::U32)
    }

    pub fn destination(&self, operand: &Operand) -> Result<Slot> {
        match operand {
            Operand::Register(r) if self.width(*r) != 1 => Ok(self.slots.of[*r as usize]),
            _ => malformed("a destination register is expected"),
        }
    }

    pub fn optional(&self, operand: &Operand) -> Result<Option<Slot>> {
        match operand {
            Operand::Sink => Ok(None),
            _ => self.destination(operand).map(Some),
        }
    }

    fn pred_of(&self, register: u32) -> Result<Pred> {
        match self.width(register) {
            1 => Ok(self.slots.of[register as usize]),
            _ => malformed("a predicate is expected"),
        }
    }

    /// A predicate source, perhaps negated.
    pub fn predicate(&self, operand: &Operand) -> Result<(Pred, bool)> {
        match operand {
            Operand::Register(r) => Ok((self.pred_of(*r)?, false)),
            Operand::Not(r) => Ok((self.pred_of(*r)?, true)),
            _ => malformed("a predicate is expected"),
        }
    }

    /// A predicate source or a constant.
    pub fn predicate_or_constant(&self, operand: &Operand) -> Result<std::result::Result<(Pred, bool), bool>> {
        match operand {
            Operand::Immediate(value) => Ok(Err(*value != 0)),
            _ => self.predicate(operand).map(Ok),
        }
    }

    /// `d|p` or `d`.
    pub fn pair(&self, operand: &Operand) -> Result<(Option<u32>, Option<u32>)> {
        match operand {
            Operand::Pair(a, b) => Ok((a.map(|r| self.slots.of[r as usize]), b.map(|r| self.pred_of(r)).transpose()?)),
            Operand::Register(r) => Ok((Some(self.slots.of[*r as usize]), None)),
            _ => malformed("a destination is expected"),
        }
    }

    /// Base and offset of `[a + imm]`.
    pub fn address(&mut self, operand: &Operand) -> Result<(Slot, i64)> {
        match operand {
            Operand::Address(base, offset, _) => Ok((self.value(base, Type::U64)?, *offset)),
            _ => malformed("an address is expected"),
        }
    }

    /// The registers of `{...}` or of a single operand.
    pub fn list(&mut self, operand: &Operand, t: Type) -> Result<Box<[Slot]>> {
        match operand {
            Operand::Vector(list) => list.iter().map(|o| self.value(o, t)).collect(),
            one => Ok(Box::new([self.value(one, t)?])),
        }
    }

    /// Whether anything reads one of these destinations.
    pub fn wanted(&self, operand: &Operand) -> bool {
        let mut wanted = false;
        visit(operand, &mut |r| wanted |= self.slots.mentions[r as usize] > 1);
        wanted
    }

    pub fn destinations(&self, operand: &Operand) -> Result<Box<[Option<Slot>]>> {
        match operand {
            Operand::Vector(list) => list.iter().map(|o| self.optional(o)).collect(),
            one => Ok(Box::new([self.optional(one)?])),
        }
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<Op> {
        let words: Vec<&str> = instruction.opcode.split('.').collect();
        let parts = Parts {
            root: words[0],
            modes: Modes(&words[1..]),
            operands: &instruction.operands,
            opcode: &instruction.opcode,
        };
        let p = &parts;
        if let Some(op) = memory::decode(self, p)? {
            return Ok(op);
        }
        if let Some(op) = sync::decode(self, p)? {
            return Ok(op);
        }
        if let Some(op) = matrix::decode(self, p)? {
            return Ok(op);
        }
        match p.root {
            "bra" => match p.operand(0)? {
                Operand::Label(label) => Ok(Op::Branch { target: self.entry.labels[*label as usize] }),
                _ => malformed("a label is expected"),
            },
            "ret" | "exit" => Ok(Op::Exit),
            "trap" | "brkpt" => Ok(Op::Trap),
            "nanosleep" | "pmevent" | "discard" | "applypriority" | "griddepcontrol" if !p.has("wait") => Ok(Op::Nop),
            "griddepcontrol" => Ok(Op::GridWait),
            "mov" => self.mov(p),
            "selp" => {
                let t = p.ty()?;
                let (a, b) = (self.value(p.operand(1)?, t)?, self.value(p.operand(2)?, t)?);
                let (predicate, negate) = self.predicate(p.operand(3)?)?;
                Ok(Op::Select { d: self.destination(p.operand(0)?)?, a, b, p: predicate, negate })
            }
            "setp" => self.setp(p),
            "cvt" => self.cvt(p),
            "and" | "or" | "xor" | "not" if p.has("pred") => {
                let (d, _) = self.predicate(p.operand(0)?)?;
                let a = self.predicate(p.operand(1)?)?;
                Ok(match p.root {
                    "not" => Op::SetPredicate { d, s: Ok((a.0, !a.1)) },
                    root => {
                        let op = logic(root).ok_or_else(|| Fault::new(Kind::Unsupported, root))?;
                        Op::Logic { op, d, a, b: self.predicate(p.operand(2)?)? }
                    }
                })
            }
            "lop3" => {
                let sources = [1, 2, 3].map(|i| p.operand(i));
                let mut s = [0; 3];
                for (slot, source) in s.iter_mut().zip(sources) {
                    *slot = self.word(source?)?;
                }
                p.only(&[])?;
                Ok(Op::Lop3 { d: self.destination(p.operand(0)?)?, s, table: p.immediate(4)? as u8 })
            }
            "bfi" => {
                let t = p.ty()?;
                Ok(Op::Insert {
                    d: self.destination(p.operand(0)?)?,
                    a: self.value(p.operand(1)?, t)?,
                    b: self.value(p.operand(2)?, t)?,
                    position: self.word(p.operand(3)?)?,
                    length: self.word(p.operand(4)?)?,
                    bits: t.bits(),
                })
            }
            _ => self.arithmetic(p),
        }
    }
}

pub fn logic(name: &str) -> Option<LogicOp> {
    match name {
        "and" => Some(LogicOp::And),
        "or" => Some(LogicOp::Or),
        "xor" => Some(LogicOp::Xor),
        _ => None,
    }
}
