//! Elements of matrix operands, and how 16-byte chunks of shared memory hold them.

use std::sync::LazyLock;

use crate::float::{E2M1, E2M3, E3M2, E4M3, E5M2, Format, tf32_operand};

/// Type of an operand's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// f32 of which 19 bits count.
    Tf32,
    /// FP8.
    E4m3,
    /// FP8.
    E5m2,
    /// FP6.
    E2m3,
    /// FP6.
    E3m2,
    /// FP4.
    E2m1,
    /// Signed byte.
    S8,
    /// Unsigned byte.
    U8,
}

/// How elements below eight bits lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Packing {
    /// One after the other; 4-bit elements two per byte, the first in the low half.
    #[default]
    Dense,
    /// 16 elements in the first 8 (4 bits) or 12 (6 bits) bytes of a chunk, the rest is padding.
    Padded16,
    /// One per byte: 6 bits in 5:0, 4 bits in 5:2 (where the bits lie is not established).
    Byte,
}

impl Element {
    /// Bits of an element.
    pub const fn bits(self) -> u32 {
        match self {
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::E2m3 | Element::E3m2 => 6,
            Element::E2m1 => 4,
        }
    }

    /// Elements per 16-byte chunk of an operand.
    pub const fn per_chunk(self, packing: Packing) -> usize {
        match packing {
            Packing::Dense => 128 / self.bits() as usize,
            Packing::Padded16 | Packing::Byte => 16,
        }
    }

    /// Whether the product is one of integers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Element::S8 | Element::U8)
    }

    /// Values of the chunk's elements. `out` holds [`Element::per_chunk`] values; integers are exact in f32.
    #[inline]
    pub fn decode(self, packing: Packing, chunk: &[u8; 16], out: &mut [f32]) {
        match self {
            Element::F16 => each16(chunk, out, f16_to_f32),
            Element::Bf16 => each16(chunk, out, |h| f32::from_bits((h as u32) << 16)),
            Element::Tf32 => {
                for (value, word) in out.iter_mut().zip(chunk.as_chunks::<4>().0) {
                    *value = tf32_operand(u32::from_le_bytes(*word));
                }
            }
            Element::S8 => each8(chunk, out, |b| b as i8 as f32),
            Element::U8 => each8(chunk, out, |b| b as f32),
            Element::E4m3 => table8(&TABLES[0], chunk, out),
            Element::E5m2 => table8(&TABLES[1], chunk, out),
            Element::E2m3 => sub_byte(&TABLES[2], 6, packing, chunk, out),
            Element::E3m2 => sub_byte(&TABLES[3], 6, packing, chunk, out),
            Element::E2m1 => sub_byte(&TABLES[4], 4, packing, chunk, out),
        }
    }
}

static TABLES: LazyLock<[[f32; 256]; 5]> = LazyLock::new(|| {
    let table = |format: Format| std::array::from_fn(|code| format.decode(code as u32));
    [table(E4M3), table(E5M2), table(E2M3), table(E3M2), table(E2M1)]
});

#[inline]
fn each16(chunk: &[u8; 16], out: &mut [f32], value: impl Fn(u16) -> f32) {
    for (out, half) in out.iter_mut().zip(chunk.as_chunks::<2>().0) {
        *out = value(u16::from_le_bytes(*half));
    }
}

#[inline]
fn each8(chunk: &[u8; 16], out: &mut [f32], value: impl Fn(u8) -> f32) {
    for (out, &byte) in out.iter_mut().zip(chunk) {
        *out = value(byte);
    }
}

#[inline]
fn table8(table: &[f32; 256], chunk: &[u8; 16], out: &mut [f32]) {
    each8(chunk, out, |byte| table[byte as usize]);
}

fn sub_byte(table: &[f32; 256], bits: u32, packing: Packing, chunk: &[u8; 16], out: &mut [f32]) {
    let all = u128::from_le_bytes(*chunk);
    let mask = (1 << bits) - 1;
    for (i, out) in out.iter_mut().enumerate() {
        let code = match packing {
            Packing::Dense | Packing::Padded16 => all >> (i as u32 * bits),
            Packing::Byte => all >> (8 * i as u32 + if bits == 4 { 2 } else { 0 }),
        };
        *out = table[code as usize & mask];
    }
}

/// Exact, without branches: the exponent is re-biased by a multiplication, which also normalises subnormals.
#[inline]
fn f16_to_f32(h: u16) -> f32 {
    let magnitude = ((h & 0x7FFF) as u32) << 13;
    let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let special = if h & 0x7C00 == 0x7C00 { 0x7F80_0000 } else { 0 };
    f32::from_bits(scaled | special | ((h & 0x8000) as u32) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_exact() {
        for code in 0..=u16::MAX {
            let (a, b) = (f16_to_f32(code), half::f16::from_bits(code).to_f32());
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{code:#x}");
        }
    }

    #[test]
    fn chunks_hold_their_elements_in_order() {
        let mut chunk = [0u8; 16];
        for (i, half) in chunk.chunks_mut(2).enumerate() {
            half.copy_from_slice(&half::bf16::from_f32(i as f32 - 3.0).to_le_bytes());
        }
        let mut out = [0f32; 8];
        Element::Bf16.decode(Packing::Dense, &chunk, &mut out);
        assert_eq!(out, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);

        let bytes: [u8; 16] = std::array::from_fn(|i| (i * 37) as u8);
        let mut out = [0f32; 16];
        Element::S8.decode(Packing::Dense, &bytes, &mut out);
        assert_eq!(out.map(|v| v as i8 as u8), bytes);

        // E2M1 codes 0..15: dense nibbles and padded ones agree on the first eight bytes.
        let nibbles: [u8; 16] =
            std::array::from_fn(|i| if i < 8 { (2 * i) as u8 | ((2 * i + 1) as u8) << 4 } else { 0xFF });
        let want: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
        let (mut padded, mut dense) = ([0f32; 16], [0f32; 32]);
        Element::E2m1.decode(Packing::Padded16, &nibbles, &mut padded);
        Element::E2m1.decode(Packing::Dense, &nibbles, &mut dense);
        assert_eq!((padded, &dense[..16], dense[16]), (want, &want[..], -6.0));

        // Four 6-bit codes fill three bytes.
        let mut six = [0u8; 16];
        six[..3].copy_from_slice(&(1u32 | 2 << 6 | 3 << 12 | 4 << 18).to_le_bytes()[..3]);
        Element::E2m3.decode(Packing::Padded16, &six, &mut out);
        assert_eq!(out[..5], [0.125, 0.25, 0.375, 0.5, 0.0]);
    }
}
