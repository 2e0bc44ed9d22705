//! Operands of instructions.

use super::lexer::Token;
use super::parser::Parser;
use crate::error::Result;

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

impl<'a> Parser<'a> {
    fn offset(&mut self) -> Result<i64> {
        match self.eat(b'+') || self.is(b'-') {
            true => Ok(self.integer()? as i64),
            false => Ok(0),
        }
    }

    pub fn operand(&mut self) -> Result<Raw<'a>> {
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
