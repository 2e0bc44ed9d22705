//! Canonical layouts of matrices in shared memory (PTX ISA 9.7.15.5.1.2 for wgmma, 9.7.16.3 for tcgen05).

use super::{Element, Packing, Swizzle};
use crate::error::{Fault, Kind, Result};

/// Which index is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// The reduction index.
    K,
    /// The row of A or the column of B.
    Mn,
}

/// Shared memory as the async proxy of one CTA sees it.
pub trait SharedRead {
    /// The 16 bytes at `address`, a multiple of 16, an offset in the CTA's shared window.
    ///
    /// # Errors
    /// Whatever the memory finds wrong: bounds, uninitialised bytes, races.
    fn read16(&mut self, address: u32) -> Result<[u8; 16]>;
}

/// A matrix descriptor, decoded; all distances in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDescriptor {
    /// Start address, 18 bits.
    pub start: u32,
    /// Leading dimension byte offset.
    pub leading: u32,
    /// Stride dimension byte offset.
    pub stride: u32,
    /// Swizzle mode.
    pub swizzle: Swizzle,
    /// 128-byte lines between a multiple of the swizzle's pattern and where the pattern begins.
    pub base_offset: u32,
}

/// Layout of one operand: `rows` of the M or N index by `chunks` 16-byte units of K (K-major), or by `k` (MN-major).
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Where and how.
    pub descriptor: MatrixDescriptor,
    /// Contiguous index.
    pub major: Major,
    /// Element type.
    pub element: Element,
    /// Packing of small elements.
    pub packing: Packing,
}

impl Layout {
    /// Address of the chunk with elements `(mn, chunk * T ..)` of a K-major operand, T elements per chunk.
    #[inline]
    pub fn k_major_chunk(&self, mn: u32, chunk: u32) -> u32 {
        let d = &self.descriptor;
        let rows = (mn / 8).wrapping_mul(d.stride);
        let offset = match d.swizzle {
            Swizzle::None => mn % 8 * 16 + rows + chunk * d.leading,
            swizzle => mn % 8 * swizzle.span() + rows + chunk * 16,
        };
        d.swizzle.apply_from(d.start + offset, d.base_offset)
    }

    /// Address of the chunk with elements `(chunk * T .., k)` of an MN-major operand.
    #[inline]
    pub fn mn_major_chunk(&self, chunk: u32, k: u32) -> u32 {
        let d = &self.descriptor;
        let offset = match d.swizzle {
            Swizzle::None => chunk * d.stride + k % 8 * 16 + k / 8 * d.leading,
            // The only layout whose K period is four rows (tf32 of tcgen05).
            Swizzle::B128Atom32 => chunk % 8 * 16 + chunk / 8 * d.leading + k % 4 * 128 + k / 4 * d.stride,
            swizzle => {
                let width = swizzle.span() / 16;
                chunk % width * 16 + chunk / width * d.leading + k % 8 * swizzle.span() + k / 8 * d.stride
            }
        };
        d.swizzle.apply_from(d.start + offset, d.base_offset)
    }

    /// Reads the operand as rows of `k` values: `out[mn * k + kk]`.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn read_rows<R: SharedRead>(&self, rows: usize, k: usize, memory: &mut R, out: &mut [f32]) -> Result<()> {
        let per_chunk = self.element.per_chunk(self.packing);
        let mut values = [0f32; 32];
        match self.major {
            Major::K => {
                for (mn, row) in out.chunks_exact_mut(k).take(rows).enumerate() {
                    for (chunk, values) in row.chunks_exact_mut(per_chunk).enumerate() {
                        let bytes = memory.read16(self.k_major_chunk(mn as u32, chunk as u32))?;
                        self.element.decode(self.packing, &bytes, values);
                    }
                }
            }
            Major::Mn => {
                for kk in 0..k {
                    for chunk in 0..rows / per_chunk {
                        let bytes = memory.read16(self.mn_major_chunk(chunk as u32, kk as u32))?;
                        self.element.decode(self.packing, &bytes, &mut values[..per_chunk]);
                        for (i, &value) in values[..per_chunk].iter().enumerate() {
                            out[(chunk * per_chunk + i) * k + kk] = value;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the operand as `k` rows of `columns` values: `out[kk * pitch + mn]`.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn read_columns<R: SharedRead>(
        &self,
        columns: usize,
        k: usize,
        pitch: usize,
        memory: &mut R,
        out: &mut [f32],
    ) -> Result<()> {
        let per_chunk = self.element.per_chunk(self.packing);
        let mut values = [0f32; 32];
        match self.major {
            Major::K => {
                for mn in 0..columns {
                    for chunk in 0..k / per_chunk {
                        let bytes = memory.read16(self.k_major_chunk(mn as u32, chunk as u32))?;
                        self.element.decode(self.packing, &bytes, &mut values[..per_chunk]);
                        let first = chunk * per_chunk * pitch + mn;
                        for (slot, &value) in out[first..].iter_mut().step_by(pitch).zip(&values[..per_chunk]) {
                            *slot = value;
                        }
                    }
                }
            }
            Major::Mn => {
                for (kk, row) in out.chunks_mut(pitch).take(k).enumerate() {
                    // A last chunk may reach beyond the columns: N is a multiple of 8, a chunk of bytes holds 16.
                    for (chunk, slots) in row[..columns].chunks_mut(per_chunk).enumerate() {
                        let bytes = memory.read16(self.mn_major_chunk(chunk as u32, kk as u32))?;
                        self.element.decode(self.packing, &bytes, &mut values[..per_chunk]);
                        slots.copy_from_slice(&values[..slots.len()]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses a K-major operand whose start address leaves no room for `bytes` of K inside the swizzle span.
    ///
    /// # Errors
    /// [`Kind::Descriptor`].
    pub fn check_span(&self, bytes: u32) -> Result<()> {
        let MatrixDescriptor { start, swizzle, .. } = self.descriptor;
        if swizzle == Swizzle::None || self.major == Major::Mn {
            return Ok(());
        }
        let within = start % swizzle.span();
        if within + bytes > swizzle.span() {
            return Fault::err(
                Kind::Descriptor,
                format!(
                    "start address {start:#x} is {within} bytes into a {}-byte swizzle span: {bytes} bytes of K leave it",
                    swizzle.span()
                ),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// The formulas per element, straight from the ISA's tables.
    fn by_formula(layout: &Layout, mn: u32, k: u32) -> u32 {
        let d = &layout.descriptor;
        let es = layout.element.bits() / 8;
        let t = 16 / es;
        let w = if d.swizzle == Swizzle::None { 1 } else { d.swizzle.span() / 16 };
        let offset = match (layout.major, d.swizzle) {
            (Major::K, Swizzle::None) => mn % 8 * 16 + mn / 8 * d.stride + k / t * d.leading + k % t * es,
            (Major::K, _) => mn % 8 * 16 * w + mn / 8 * d.stride + k / t * 16 + k % t * es,
            (Major::Mn, Swizzle::None) => mn % t * es + mn / t * d.stride + k % 8 * 16 + k / 8 * d.leading,
            (Major::Mn, Swizzle::B128Atom32) => {
                mn % 4 * 4 + mn / 4 % 8 * 16 + mn / 32 * d.leading + k % 4 * 128 + k / 4 * d.stride
            }
            (Major::Mn, _) => {
                mn % t * es + mn / t % w * 16 + mn / (t * w) * d.leading + k % 8 * 16 * w + k / 8 * d.stride
            }
        };
        d.swizzle.apply_from(d.start + offset, d.base_offset)
    }

    struct Bytes(Vec<u8>);

    impl SharedRead for Bytes {
        fn read16(&mut self, address: u32) -> Result<[u8; 16]> {
            let at = address as usize;
            assert_eq!(at % 16, 0);
            Ok(self.0[at..at + 16].try_into().unwrap())
        }
    }

    fn check(layout: Layout, rows: u32, k: u32) {
        let es = layout.element.bits() / 8;
        let mut memory = vec![0xEEu8; 1 << 17];
        let value = |mn: u32, k: u32| ((mn * 5 + k * 3) % 61) as f32;
        for mn in 0..rows {
            for kk in 0..k {
                let at = by_formula(&layout, mn, kk) as usize;
                match layout.element {
                    Element::Bf16 => {
                        memory[at..at + 2].copy_from_slice(&half::bf16::from_f32(value(mn, kk)).to_le_bytes())
                    }
                    Element::Tf32 => memory[at..at + 4].copy_from_slice(&value(mn, kk).to_le_bytes()),
                    _ => memory[at] = value(mn, kk) as u8,
                }
            }
        }
        assert!(es > 0);
        let mut memory = Bytes(memory);
        let mut by_rows = vec![0f32; (rows * k) as usize];
        layout.read_rows(rows as usize, k as usize, &mut memory, &mut by_rows).unwrap();
        let pitch = rows as usize + 3;
        let mut by_columns = vec![0f32; pitch * k as usize];
        layout.read_columns(rows as usize, k as usize, pitch, &mut memory, &mut by_columns).unwrap();
        for mn in 0..rows {
            for kk in 0..k {
                assert_eq!(by_rows[(mn * k + kk) as usize], value(mn, kk), "{layout:?} {mn} {kk}");
                assert_eq!(by_columns[kk as usize * pitch + mn as usize], value(mn, kk), "{layout:?} {mn} {kk}");
            }
        }
    }

    #[test]
    fn chunks_lie_where_the_formulas_put_elements() {
        for swizzle in MODES {
            for (element, k) in [(Element::Bf16, 16), (Element::Tf32, 8), (Element::U8, 32)] {
                // Distances wide enough that nothing overlaps: rows are far apart, columns of K further.
                let (leading, stride) = if swizzle == Swizzle::None { (128, 272) } else { (16, 1024) };
                let descriptor = MatrixDescriptor { start: 2048, leading, stride, swizzle, base_offset: 0 };
                check(Layout { descriptor, major: Major::K, element, packing: Packing::Dense }, 64, k);
                let (leading, stride) = if swizzle == Swizzle::None { (2048, 128) } else { (8192, 1024) };
                let descriptor = MatrixDescriptor { start: 2048, leading, stride, swizzle, base_offset: 0 };
                check(Layout { descriptor, major: Major::Mn, element, packing: Packing::Dense }, 64, k);
            }
        }
        let descriptor =
            MatrixDescriptor { start: 1024, leading: 1024, stride: 512, swizzle: Swizzle::B128Atom32, base_offset: 0 };
        check(Layout { descriptor, major: Major::Mn, element: Element::Tf32, packing: Packing::Dense }, 64, 8);
    }

    #[test]
    fn a_k_step_beyond_the_span_is_refused() {
        let at = |start| Layout {
            descriptor: MatrixDescriptor { start, leading: 16, stride: 1024, swizzle: Swizzle::B128, base_offset: 0 },
            major: Major::K,
            element: Element::Bf16,
            packing: Packing::Dense,
        };
        assert!(at(4096 + 96).check_span(32).is_ok());
        assert_eq!(at(4096 + 112).check_span(32).unwrap_err().kind, Kind::Descriptor);
        assert!(at(4096 + 128).check_span(32).is_ok());
    }
}
