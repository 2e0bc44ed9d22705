//! Decodes what computes, compares, converts and moves values.

use super::alu::map;
use super::compare::compare;
use super::convert::{Conversion, fast};
use super::decode::{Decoder, Parts, logic, malformed, unsupported};
use super::op::Op;
use super::types::Type;
use crate::error::Result;
use crate::float::Rounding;
use crate::ptx::ast::Operand;

impl Decoder<'_> {
    pub fn arithmetic(&mut self, p: &Parts) -> Result<Op> {
        const KNOWN: &[&str] = &[
            "rn", "rz", "rm", "rp", "ftz", "sat", "relu", "lo", "hi", "wide", "approx", "full", "NaN", "noftz", "wrap",
            "clamp", "l", "r", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16", "shiftamt",
        ];
        p.only(KNOWN)?;
        let t = p.ty()?;
        let Some((f, count)) = map(p.root, &p.modes, t) else {
            return unsupported(&format!("instruction {}", p.opcode));
        };
        if p.operands.len() != usize::from(count) + 1 {
            return malformed(&format!("{count} sources are expected"));
        }
        let mut s = [0; 3];
        for (i, slot) in s.iter_mut().enumerate().take(count.into()) {
            // A shift count is 32-bit whatever the type; a wide product adds to its own width.
            let shift = i > 0 && matches!(p.root, "shl" | "shr" | "bfe") || i == 2 && p.root == "shf";
            let wide = i == 2 && p.root == "mad" && p.has("wide");
            let source = match () {
                () if shift => Type::U32,
                () if wide => Type::U64,
                () => t,
            };
            *slot = self.value(p.operand(i + 1)?, source)?;
        }
        let first = s[0];
        s[count.into()..].fill(first);
        Ok(Op::Map { f, d: self.destination(p.operand(0)?)?, s, count })
    }

    pub fn mov(&mut self, p: &Parts) -> Result<Op> {
        let (t, to, from) = (p.ty()?, p.operand(0)?, p.operand(1)?);
        if t == Type::Pred {
            return Ok(Op::SetPredicate { d: self.predicate(to)?.0, s: self.predicate_or_constant(from)? });
        }
        match (to, from) {
            (Operand::Vector(list), _) | (_, Operand::Vector(list)) if list.is_empty() => malformed("an empty vector"),
            (Operand::Vector(list), _) => {
                Ok(Op::Split { d: self.destinations(to)?, s: self.value(from, t)?, bits: t.bits() / list.len() as u32 })
            }
            (_, Operand::Vector(list)) => {
                let bits = t.bits() / list.len() as u32;
                Ok(Op::Join { d: self.destination(to)?, s: self.list(from, t)?, bits })
            }
            (_, Operand::Special(special)) if special.varies() => {
                Ok(Op::Varying { d: self.destination(to)?, special: *special })
            }
            _ if t == Type::B128 => Ok(Op::Move128 { d: self.destination(to)?, s: self.value(from, t)? }),
            _ => Ok(Op::Move { d: self.destination(to)?, s: self.value(from, t)? }),
        }
    }

    pub fn setp(&mut self, p: &Parts) -> Result<Op> {
        p.only(&[
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
            "num", "nan", "ftz", "and", "or", "xor",
        ])?;
        let t = p.ty()?;
        let Some(f) = p.modes.0.first().and_then(|name| compare(name, t)) else {
            return unsupported(&format!("comparison {}", p.opcode));
        };
        let (first, second) = match p.operand(0)? {
            Operand::Pair(..) => self.pair(p.operand(0)?)?,
            Operand::Sink => (None, None),
            one => (Some(self.predicate(one)?.0), None),
        };
        let combine = match p.modes.0.iter().find_map(|m| logic(m)) {
            Some(op) => {
                let (predicate, negate) = self.predicate(p.operand(3)?)?;
                Some((op, predicate, negate))
            }
            None => None,
        };
        let (a, b) = (self.value(p.operand(1)?, t)?, self.value(p.operand(2)?, t)?);
        Ok(Op::Compare { f, p: first, q: second, a, b, combine })
    }

    pub fn cvt(&mut self, p: &Parts) -> Result<Op> {
        p.only(&["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "sat", "satfinite", "relu", "ftz"])?;
        let types: Vec<Type> = p.modes.0.iter().filter_map(|m| Type::parse(m)).collect();
        let &[to, from] = &types[..] else { return unsupported("this form of cvt") };
        let find = |names: [(&str, Rounding); 5]| names.into_iter().find(|(n, _)| p.has(n)).map(|(_, r)| r);
        let c = Conversion {
            to,
            from,
            rounding: find([
                ("rn", Rounding::NearestEven),
                ("rz", Rounding::Zero),
                ("rm", Rounding::Down),
                ("rp", Rounding::Up),
                ("rna", Rounding::NearestAway),
            ]),
            integral: find([
                ("rni", Rounding::NearestEven),
                ("rzi", Rounding::Zero),
                ("rmi", Rounding::Down),
                ("rpi", Rounding::Up),
                ("", Rounding::Zero),
            ]),
            sat: p.has("sat"),
            satfinite: p.has("satfinite"),
            relu: p.has("relu"),
            ftz: p.has("ftz"),
        };
        if !c.known() {
            return unsupported(&format!("conversion {}", p.opcode));
        }
        let d = self.destination(p.operand(0)?)?;
        let a = self.value(p.operand(1)?, from)?;
        let b = if c.sources() == 2 { self.value(p.operand(2)?, from)? } else { a };
        Ok(match fast(&c) {
            Some((f, count)) => Op::Map { f, d, s: [a, b, a], count },
            None => Op::ConvertValue { c, d, a, b },
        })
    }
}
