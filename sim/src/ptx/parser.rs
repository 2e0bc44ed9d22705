//! From tokens to statements.

use super::ast::{Global, Module, Space};
use super::lexer::{Token, at, tokens};
use super::resolve::resolve;
use crate::error::{Fault, Kind, Result};

/// An operand with its names as written.
#[derive(Clone, Debug)]
pub enum Raw<'a> {
    Word(&'a str, i64),
    Not(&'a str),
    Pair(&'a str, &'a str),
    Integer(u64),
    Float(f64),
    Vector(Vec<Raw<'a>>),
    Address(Box<Raw<'a>>, i64, Vec<Raw<'a>>),
}

#[derive(Clone, Debug)]
pub enum Statement<'a> {
    Registers(u8, Vec<(&'a str, Option<u32>)>),
    Variable(Variable<'a>),
    Label(&'a str),
    Block(Vec<Statement<'a>>),
    Instruction(RawInstruction<'a>),
}

#[derive(Clone, Debug)]
pub struct RawInstruction<'a> {
    pub guard: Option<(&'a str, bool)>,
    pub opcode: &'a str,
    pub operands: Vec<Raw<'a>>,
    pub line: u32,
    pub source: (u32, u32),
}

#[derive(Clone, Debug)]
pub struct Variable<'a> {
    pub space: Space,
    pub name: &'a str,
    pub align: u32,
    /// `None`: an unsized array.
    pub bytes: Option<u32>,
    pub initial: Vec<u8>,
    pub line: u32,
}

/// An entry before its names are resolved.
#[derive(Clone, Debug, Default)]
pub struct RawEntry<'a> {
    pub name: &'a str,
    pub params: Vec<Variable<'a>>,
    pub directives: Vec<(&'a str, Vec<u32>)>,
    pub body: Vec<Statement<'a>>,
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    next: usize,
    source: (u32, u32),
}

/// Parses a module.
///
/// # Errors
/// `Malformed` with the line.
pub fn parse(text: &str) -> Result<Module> {
    let mut p = Parser { tokens: tokens(text)?, next: 0, source: (0, 0) };
    let mut module = Module::default();
    let (mut shared, mut entries) = (Vec::new(), Vec::new());
    while let Some(token) = p.peek() {
        let Token::Word(word) = token else { return Err(p.unexpected("a directive")) };
        match word {
            ".version" => {
                p.next += 1;
                let Some(Token::Float(version)) = p.peek() else { return Err(p.unexpected("a version")) };
                module.version = (version as u32, (version * 10.0).round() as u32 % 10);
                p.next += 1;
            }
            ".target" => {
                p.next += 1;
                module.target = p.word()?.into();
                while p.eat(b',') {
                    p.word()?;
                }
            }
            ".address_size" => {
                p.next += 2;
            }
            ".file" => {
                p.next += 1;
                let index = p.integer()? as u32;
                if let Some(Token::Text(name)) = p.peek() {
                    module.files.push((index, name.into()));
                    p.next += 1;
                }
                while p.eat(b',') {
                    p.next += 1;
                }
            }
            ".section" => {
                p.next += 1;
                p.skip_braces()?;
            }
            ".extern" | ".visible" | ".weak" | ".common" => p.next += 1,
            ".entry" => {
                p.next += 1;
                entries.push(p.entry()?);
            }
            ".func" => return Err(p.here(Kind::Unsupported, "functions that are not inlined")),
            ".shared" | ".global" | ".const" => {
                let variable = p.variable()?;
                p.expect(b';')?;
                match variable.space {
                    Space::Shared => shared.push(variable),
                    _ => module.globals.push(Global {
                        name: variable.name.into(),
                        bytes: variable.bytes.unwrap_or(0),
                        initial: variable.initial,
                    }),
                }
            }
            _ => return Err(p.here(Kind::Unsupported, &format!("directive {word}"))),
        }
    }
    for entry in entries {
        module.entries.push(resolve(entry, &shared, &module.globals)?);
    }
    Ok(module)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|t| t.0)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn here(&self, kind: Kind, message: &str) -> Fault {
        Fault { kind, ..at(self.line(), message) }
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        match self.peek() {
            Some(token) => at(self.line(), &format!("{wanted} expected, found {token:?}")),
            None => at(self.line(), &format!("{wanted} expected, but the text ends")),
        }
    }

    fn is(&self, sign: u8) -> bool {
        self.peek() == Some(Token::Sign(sign))
    }

    fn eat(&mut self, sign: u8) -> bool {
        let found = self.is(sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: u8) -> Result<()> {
        match self.eat(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("'{}'", sign as char))),
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected("a name")) };
        self.next += 1;
        Ok(word)
    }

    fn integer(&mut self) -> Result<u64> {
        let negative = self.eat(b'-');
        let Some(Token::Integer(value)) = self.peek() else { return Err(self.unexpected("an integer")) };
        self.next += 1;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    fn skip_braces(&mut self) -> Result<()> {
        while !self.is(b'{') {
            self.peek().ok_or_else(|| self.unexpected("'{'"))?;
            self.next += 1;
        }
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(Token::Sign(b'{')) => depth += 1,
                Some(Token::Sign(b'}')) => depth -= 1,
                None => return Err(self.unexpected("'}'")),
                _ => {}
            }
            self.next += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// `.space {.align n} .type name{[n]}{ = ...}`; the directive `.param` too.
    fn variable(&mut self) -> Result<Variable<'a>> {
        let line = self.line();
        let space = match self.word()? {
            ".shared" => Space::Shared,
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".local" => Space::Local,
            ".param" => Space::Param,
            other => return Err(at(line, &format!("{other} is no state space"))),
        };
        let (mut align, mut element, mut vector) = (0, 0, 1);
        let name = loop {
            match self.word()? {
                ".align" => align = self.integer()? as u32,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".attribute" => return Err(at(line, ".attribute is not modelled")),
                ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                word if word.starts_with('.') => {
                    element = bits(word).ok_or_else(|| at(line, &format!("{word} is no type")))?;
                }
                word => break word,
            }
        };
        let element = u32::from(element).div_ceil(8).max(1) * vector;
        let mut bytes = Some(element);
        while self.eat(b'[') {
            if self.eat(b']') {
                bytes = None;
                continue;
            }
            let count = self.integer()?;
            bytes = bytes.map(|bytes| (u64::from(bytes) * count).min(u32::MAX.into()) as u32);
            self.expect(b']')?;
        }
        let mut initial = Vec::new();
        if self.eat(b'=') {
            self.initial(element, &mut initial)?;
        }
        Ok(Variable { space, name, align: align.max(element.min(16)), bytes, initial, line })
    }

    fn initial(&mut self, element: u32, out: &mut Vec<u8>) -> Result<()> {
        if self.eat(b'{') {
            while !self.eat(b'}') {
                self.initial(element, out)?;
                self.eat(b',');
            }
            return Ok(());
        }
        let value = match self.peek() {
            Some(Token::Float(value)) if element == 4 => {
                self.next += 1;
                (value as f32).to_bits().into()
            }
            Some(Token::Float(value)) => {
                self.next += 1;
                value.to_bits()
            }
            _ => self.integer()?,
        };
        out.extend(&value.to_le_bytes()[..(element as usize).min(8)]);
        Ok(())
    }

    fn entry(&mut self) -> Result<RawEntry<'a>> {
        let mut entry = RawEntry { name: self.word()?, ..RawEntry::default() };
        if self.eat(b'(') {
            while !self.eat(b')') {
                entry.params.push(self.variable()?);
                self.eat(b',');
            }
        }
        while !self.is(b'{') {
            let directive = self.word()?;
            let mut values = Vec::new();
            while let Some(Token::Integer(value)) = self.peek() {
                values.push(value as u32);
                self.next += 1;
                self.eat(b',');
            }
            self.eat(b';');
            entry.directives.push((directive, values));
        }
        self.expect(b'{')?;
        entry.body = self.block()?;
        Ok(entry)
    }

    fn block(&mut self) -> Result<Vec<Statement<'a>>> {
        let mut out = Vec::new();
        while !self.eat(b'}') {
            if self.eat(b'{') {
                out.push(Statement::Block(self.block()?));
                continue;
            }
            let line = self.line();
            let guard = match self.eat(b'@') {
                true => {
                    let negated = self.eat(b'!');
                    Some((self.word()?, negated))
                }
                false => None,
            };
            let word = self.word()?;
            if guard.is_none() && self.eat(b':') {
                out.push(Statement::Label(word));
                continue;
            }
            match word {
                ".reg" => {
                    let kind = self.word()?;
                    let width = bits(kind).ok_or_else(|| at(line, &format!("{kind} is no register type")))?;
                    let mut names = Vec::new();
                    loop {
                        let name = self.word()?;
                        let count = match self.eat(b'<') {
                            true => Some(self.integer()?.min(u64::from(u32::MAX)) as u32),
                            false => None,
                        };
                        if count.is_some_and(|count| count > 1 << 20) {
                            return Err(at(line, "more registers than any machine has"));
                        }
                        if count.is_some() {
                            self.expect(b'>')?;
                        }
                        names.push((name, count));
                        if !self.eat(b',') {
                            break;
                        }
                    }
                    self.expect(b';')?;
                    out.push(Statement::Registers(width, names));
                }
                ".shared" | ".local" | ".param" => {
                    self.next -= 1;
                    out.push(Statement::Variable(self.variable()?));
                    self.expect(b';')?;
                }
                ".loc" => {
                    self.source = (self.integer()? as u32, self.integer()? as u32);
                    let line = self.line();
                    while self.peek().is_some() && self.line() == line {
                        self.next += 1;
                    }
                }
                ".pragma" => {
                    while !self.eat(b';') {
                        self.peek().ok_or_else(|| self.unexpected("';'"))?;
                        self.next += 1;
                    }
                }
                _ if word.starts_with('.') => {
                    return Err(self.here(Kind::Unsupported, &format!("directive {word}")));
                }
                opcode => {
                    let mut operands = Vec::new();
                    while !self.eat(b';') {
                        operands.push(self.operand()?);
                        if !self.eat(b',') && !self.is(b';') {
                            return Err(self.unexpected("',' or ';'"));
                        }
                    }
                    let source = self.source;
                    out.push(Statement::Instruction(RawInstruction { guard, opcode, operands, line, source }));
                }
            }
        }
        Ok(out)
    }

    fn offset(&mut self) -> Result<i64> {
        match self.eat(b'+') || self.is(b'-') {
            true => Ok(self.integer()? as i64),
            false => Ok(0),
        }
    }

    fn operand(&mut self) -> Result<Raw<'a>> {
        if self.eat(b'!') {
            return Ok(Raw::Not(self.word()?));
        }
        if self.eat(b'{') {
            return Ok(Raw::Vector(self.vector()?));
        }
        if self.eat(b'[') {
            let base = match self.peek() {
                Some(Token::Word(word)) => {
                    self.next += 1;
                    Raw::Word(word, 0)
                }
                _ => Raw::Integer(self.integer()?),
            };
            let offset = self.offset()?;
            let mut coordinates = Vec::new();
            if self.eat(b',') {
                match self.eat(b'{') {
                    true => coordinates = self.vector()?,
                    false => coordinates.push(self.operand()?),
                }
            }
            self.expect(b']')?;
            return Ok(Raw::Address(Box::new(base), offset, coordinates));
        }
        match self.peek() {
            Some(Token::Word(word)) => {
                self.next += 1;
                if self.eat(b'|') {
                    return Ok(Raw::Pair(word, self.word()?));
                }
                Ok(Raw::Word(word, self.offset()?))
            }
            Some(Token::Float(value)) => {
                self.next += 1;
                Ok(Raw::Float(value))
            }
            Some(Token::Sign(b'-')) if matches!(self.tokens.get(self.next + 1), Some((Token::Float(_), _))) => {
                let Some((Token::Float(value), _)) = self.tokens.get(self.next + 1) else {
                    return Err(self.unexpected("a number"));
                };
                let value = -value;
                self.next += 2;
                Ok(Raw::Float(value))
            }
            _ => Ok(Raw::Integer(self.integer()?)),
        }
    }

    fn vector(&mut self) -> Result<Vec<Raw<'a>>> {
        let mut out = Vec::new();
        while !self.eat(b'}') {
            out.push(self.operand()?);
            if !self.eat(b',') && !self.is(b'}') {
                return Err(self.unexpected("',' or '}'"));
            }
        }
        Ok(out)
    }
}

/// Width of a fundamental type; 1 for predicates.
pub fn bits(kind: &str) -> Option<u8> {
    Some(match kind.trim_start_matches('.') {
        "pred" => 1,
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        "b128" => 128,
        _ => return None,
    })
}
