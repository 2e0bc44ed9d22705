//! Tokens of PTX text.

use crate::error::{Fault, Kind, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Opcode, directive, register, symbol or label, with dots and `::`.
    Word(&'a str),
    /// Integer, or the bits of a hexadecimal float.
    Integer(u64),
    /// Decimal floating-point number.
    Float(f64),
    Text(&'a str),
    Sign(u8),
}

/// The tokens with their lines.
pub fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>> {
    let bytes = text.as_bytes();
    let (mut i, mut line) = (0, 1);
    let mut out = Vec::with_capacity(text.len() / 5);
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%' | b'.');
    while let Some(&b) = bytes.get(i) {
        match b {
            b'\n' => {
                line += 1;
                i += 1;
            }
            b' ' | b'\t' | b'\r' | 0 => i += 1,
            b'/' if bytes[i..].starts_with(b"//") => {
                i += bytes[i..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - i);
            }
            b'/' if bytes[i..].starts_with(b"/*") => {
                let end = text[i..].find("*/").ok_or_else(|| at(line, "a comment does not end"))? + i;
                line += bytes[i..end].iter().filter(|&&b| b == b'\n').count() as u32;
                i = end + 2;
            }
            b'"' => {
                let end = text[i + 1..].find('"').ok_or_else(|| at(line, "a string does not end"))? + i + 1;
                out.push((Token::Text(&text[i + 1..end]), line));
                i = end + 1;
            }
            b'0'..=b'9' => {
                let end = i + bytes[i..].iter().position(|&b| !word(b)).unwrap_or(bytes.len() - i);
                // A decimal exponent may carry a sign.
                let digits = &text[i..end];
                let hex = digits.len() > 1 && digits.as_bytes()[1].is_ascii_alphabetic();
                let exponent = !hex && digits.ends_with(['e', 'E']) && matches!(bytes.get(end), Some(b'+' | b'-'));
                let end = match exponent {
                    true => end + 1 + bytes[end + 1..].iter().take_while(|b| b.is_ascii_digit()).count(),
                    false => end,
                };
                out.push((number(&text[i..end], line)?, line));
                i = end;
            }
            _ if word(b) => {
                let start = i;
                while let Some(&b) = bytes.get(i) {
                    match b {
                        b':' if bytes.get(i + 1) == Some(&b':') => i += 2,
                        _ if word(b) => i += 1,
                        _ => break,
                    }
                }
                // Directives may follow each other without a space: `.reg.b16`.
                let mut word = &text[start..i];
                while let Some(dot) = word[1..].find('.').filter(|_| b == b'.') {
                    out.push((Token::Word(&word[..dot + 1]), line));
                    word = &word[dot + 1..];
                }
                out.push((Token::Word(word), line));
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':' | b'@' | b'!' | b'|' | b'+'
            | b'-' | b'=' | b'~' | b'*' => {
                out.push((Token::Sign(b), line));
                i += 1;
            }
            _ => return Err(at(line, &format!("unexpected byte {b:#04x}"))),
        }
    }
    Ok(out)
}

fn number(text: &str, line: u32) -> Result<Token<'_>> {
    let bad = || at(line, &format!("{text} is no number"));
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).map(Token::Integer).map_err(|_| bad());
    let lower = text.trim_end_matches(['U', 'u']);
    match lower.as_bytes() {
        [b'0', b'f' | b'F', ..] if lower.len() == 10 => radix(&lower[2..], 16),
        [b'0', b'd' | b'D', ..] if lower.len() == 18 => radix(&lower[2..], 16),
        [b'0', b'x' | b'X', ..] => radix(&lower[2..], 16),
        [b'0', b'b' | b'B', ..] => radix(&lower[2..], 2),
        [b'0', rest @ ..] if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit) => radix(&lower[1..], 8),
        digits if digits.iter().all(u8::is_ascii_digit) => radix(lower, 10),
        _ => text.parse().map(Token::Float).map_err(|_| bad()),
    }
}

pub fn at(line: u32, message: &str) -> Fault {
    Fault::new(Kind::Malformed, format!("PTX line {line}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_lines() {
        let text = ".reg.b16 a.b::c %r1, // x\n[0x10], -0f3F800000; /* \n */ 017 1.5e+3";
        let found: Vec<_> = tokens(text).unwrap();
        let expected = [
            (Token::Word(".reg"), 1),
            (Token::Word(".b16"), 1),
            (Token::Word("a.b::c"), 1),
            (Token::Word("%r1"), 1),
            (Token::Sign(b','), 1),
            (Token::Sign(b'['), 2),
            (Token::Integer(16), 2),
            (Token::Sign(b']'), 2),
            (Token::Sign(b','), 2),
            (Token::Sign(b'-'), 2),
            (Token::Integer(0x3F80_0000), 2),
            (Token::Sign(b';'), 2),
            (Token::Integer(15), 3),
            (Token::Float(1500.0), 3),
        ];
        assert_eq!(found, expected);
        assert!(tokens("0x").is_err() && tokens("\u{7f}").is_err() && tokens("/* ").is_err());
    }
}
