//! From tokens to statements.

use super::ast::{Global, Module, Space};
use super::lexer::{Token, at, tokens};
use super::operand::Raw;
use super::resolve::resolve;
use super::variable::{Variable, bits};
use crate::error::{Fault, Kind, Result};

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

/// An entry before its names are resolved.
#[derive(Clone, Debug, Default)]
pub struct RawEntry<'a> {
    pub name: &'a str,
    pub params: Vec<Variable<'a>>,
    pub directives: Vec<(&'a str, Vec<u32>)>,
    pub body: Vec<Statement<'a>>,
}

pub struct Parser<'a> {
    pub tokens: Vec<(Token<'a>, u32)>,
    pub next: usize,
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
    pub fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|t| t.0)
    }

    pub fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn here(&self, kind: Kind, message: &str) -> Fault {
        Fault { kind, ..at(self.line(), message) }
    }

    pub fn unexpected(&self, wanted: &str) -> Fault {
        match self.peek() {
            Some(token) => at(self.line(), &format!("{wanted} expected, found {token:?}")),
            None => at(self.line(), &format!("{wanted} expected, but the text ends")),
        }
    }

    pub fn is(&self, sign: u8) -> bool {
        self.peek() == Some(Token::Sign(sign))
    }

    pub fn eat(&mut self, sign: u8) -> bool {
        let found = self.is(sign);
        self.next += usize::from(found);
        found
    }

    pub fn expect(&mut self, sign: u8) -> Result<()> {
        match self.eat(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("'{}'", sign as char))),
        }
    }

    pub fn word(&mut self) -> Result<&'a str> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.unexpected("a name")) };
        self.next += 1;
        Ok(word)
    }

    pub fn integer(&mut self) -> Result<u64> {
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
}
