//! Variables and parameters.

use super::ast::Space;
use super::lexer::{Token, at};
use super::parser::Parser;
use crate::error::Result;

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

impl<'a> Parser<'a> {
    /// `.space {.align n} .type name{[n]}{ = ...}`; the directive `.param` too.
    pub fn variable(&mut self) -> Result<Variable<'a>> {
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
