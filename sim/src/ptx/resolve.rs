//! Gives names their meaning: registers, labels and variables, by the scope they are in.

use std::collections::HashMap;

use super::ast::{Entry, Global, Instruction, Operand, Space, Symbol};
use super::lexer::at;
use super::operand::Raw;
use super::parser::{RawEntry, RawInstruction, Statement};
use super::special::Special;
use super::variable::Variable;
use crate::error::Result;

#[derive(Clone, Copy)]
enum Name {
    Register(u32),
    /// First register and count of `%r<n>`.
    Family(u32, u32),
    Label(u32),
    Symbol(Symbol),
}

struct Resolver<'a> {
    entry: Entry,
    scopes: Vec<HashMap<&'a str, Name>>,
}

pub fn resolve(raw: RawEntry, shared: &[Variable], globals: &[Global]) -> Result<Entry> {
    let mut r = Resolver { entry: Entry { name: raw.name.into(), ..Entry::default() }, scopes: vec![HashMap::new()] };
    for (name, values) in &raw.directives {
        let triple = || [0, 1, 2].map(|i| values.get(i).copied().unwrap_or(1));
        let first = values.first().copied();
        match *name {
            ".maxntid" => r.entry.max_threads = Some(triple()),
            ".reqntid" => r.entry.required_threads = Some(triple()),
            ".reqnctapercluster" => r.entry.required_cluster = Some(triple()),
            ".minnctapersm" => r.entry.min_ctas = first,
            ".maxnreg" => r.entry.max_registers = first,
            _ => {}
        }
    }
    for (index, global) in globals.iter().enumerate() {
        r.scopes[0].insert(&global.name, Name::Symbol(Symbol::Global(index as u32)));
    }
    r.entry.dynamic_align = 16;
    for variable in shared {
        r.variable(variable)?;
    }
    for param in &raw.params {
        let bytes = param.bytes.unwrap_or(0);
        let offset = r.entry.param_bytes.checked_next_multiple_of(param.align.max(1)).unwrap_or(u32::MAX);
        r.entry.params.push((offset, bytes));
        r.entry.param_bytes = offset.saturating_add(bytes);
        if r.entry.param_bytes > 1 << 16 {
            return Err(at(param.line, "more than 64 KiB of parameters"));
        }
        r.scopes[0].insert(param.name, Name::Symbol(Symbol::Param(offset)));
    }
    r.block(&raw.body)?;
    let end = r.entry.instructions.len() as u32;
    let unset = r.entry.labels.iter().position(|&at| at == u32::MAX || at > end);
    match unset {
        Some(label) => Err(at(0, &format!("label {label} of {} is not defined", r.entry.name))),
        None => Ok(r.entry),
    }
}

impl<'a> Resolver<'a> {
    fn define(&mut self, name: &'a str, meaning: Name) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, meaning);
        }
    }

    fn variable(&mut self, variable: &Variable<'a>) -> Result<()> {
        let place = |used: &mut u32, bytes: u32| {
            let offset = used.checked_next_multiple_of(variable.align.max(1)).unwrap_or(u32::MAX);
            *used = offset.saturating_add(bytes);
            offset
        };
        let symbol = match (variable.space, variable.bytes) {
            (Space::Shared, None) => {
                self.entry.dynamic_align = self.entry.dynamic_align.max(variable.align);
                Symbol::Dynamic
            }
            (Space::Shared, Some(bytes)) => Symbol::Shared(place(&mut self.entry.shared_bytes, bytes)),
            (Space::Local, Some(bytes)) => Symbol::Local(place(&mut self.entry.local_bytes, bytes)),
            _ => {
                return Err(at(variable.line, &format!("{} is in a space that kernels cannot declare", variable.name)));
            }
        };
        self.define(variable.name, Name::Symbol(symbol));
        Ok(())
    }

    fn block(&mut self, statements: &[Statement<'a>]) -> Result<()> {
        self.scopes.push(HashMap::new());
        for statement in statements {
            match statement {
                Statement::Registers(bits, names) => {
                    for &(name, count) in names {
                        let first = self.entry.registers.len() as u32;
                        match count {
                            None => self.entry.registers.push((name.into(), *bits)),
                            Some(count) => {
                                let all = (0..count).map(|i| (format!("{name}{i}"), *bits));
                                self.entry.registers.extend(all);
                            }
                        }
                        self.define(name, count.map_or(Name::Register(first), |count| Name::Family(first, count)));
                    }
                }
                Statement::Label(name) => {
                    self.entry.labels.push(u32::MAX);
                    self.define(name, Name::Label(self.entry.labels.len() as u32 - 1));
                }
                Statement::Variable(variable) => self.variable(variable)?,
                _ => {}
            }
        }
        for statement in statements {
            match statement {
                Statement::Label(name) => {
                    if let Some(Name::Label(label)) = self.find(name) {
                        self.entry.labels[label as usize] = self.entry.instructions.len() as u32;
                    }
                }
                Statement::Block(block) => self.block(block)?,
                Statement::Instruction(raw) => {
                    let instruction = self.instruction(raw)?;
                    self.entry.instructions.push(instruction);
                }
                _ => {}
            }
        }
        self.scopes.pop();
        Ok(())
    }

    fn find(&self, name: &str) -> Option<Name> {
        let exact = self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied();
        if exact.is_some_and(|found| !matches!(found, Name::Family(..))) {
            return exact;
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let index: u32 = name[stem.len()..].parse().ok()?;
        // A family may itself end in a digit: `%x1<3>` declares %x10 to %x12.
        (stem.len()..name.len()).find_map(|end| {
            let index = if end == stem.len() { index } else { name[end..].parse().ok()? };
            self.scopes.iter().rev().find_map(|scope| match scope.get(&name[..end]) {
                Some(&Name::Family(first, count)) if index < count => Some(Name::Register(first + index)),
                _ => None,
            })
        })
    }

    fn register(&self, name: &str, line: u32) -> Result<u32> {
        match self.find(name) {
            Some(Name::Register(register)) => Ok(register),
            _ => Err(at(line, &format!("{name} is not a register in scope"))),
        }
    }

    fn instruction(&self, raw: &RawInstruction) -> Result<Instruction> {
        let line = raw.line;
        let guard = match raw.guard {
            Some((name, negated)) => Some((self.register(name, line)?, negated)),
            None => None,
        };
        let operands = raw.operands.iter().map(|o| self.operand(o, line)).collect::<Result<_>>()?;
        Ok(Instruction { guard, opcode: raw.opcode.into(), operands, line, source: raw.source })
    }

    fn operand(&self, raw: &Raw, line: u32) -> Result<Operand> {
        let all = |list: &[Raw]| list.iter().map(|o| self.operand(o, line)).collect::<Result<Vec<_>>>();
        Ok(match raw {
            Raw::Integer(value) => Operand::Immediate(*value),
            Raw::Float(value) => Operand::Float(*value),
            Raw::Vector(list) => Operand::Vector(all(list)?),
            Raw::Not(name) => Operand::Not(self.register(name, line)?),
            Raw::Pair(first, second) => {
                let half = |name: &str| match name {
                    "_" => Ok(None),
                    name => self.register(name, line).map(Some),
                };
                Operand::Pair(half(first)?, half(second)?)
            }
            Raw::Address(base, offset, list) => {
                Operand::Address(Box::new(self.operand(base, line)?), *offset, all(list)?)
            }
            Raw::Word("_", 0) => Operand::Sink,
            Raw::Word(name, offset) => match self.find(name) {
                Some(Name::Register(register)) if *offset == 0 => Operand::Register(register),
                Some(Name::Label(label)) => Operand::Label(label),
                Some(Name::Symbol(symbol)) => Operand::Symbol(symbol, *offset),
                _ => match (Special::parse(name), *name) {
                    (Some(special), _) => Operand::Special(special),
                    (None, "WARP_SZ") => Operand::Immediate(32),
                    _ => return Err(at(line, &format!("{name} is not declared"))),
                },
            },
        })
    }
}
