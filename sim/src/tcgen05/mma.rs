//! `tcgen05.mma` (PTX ISA 9.7.16.10): operands of one CTA or of a pair, the product, D.
//!
//! Sums are formed as [`crate::matrix`] documents; the ISA leaves their order and rounding open.

use super::place::Place;
use super::{Accumulator, Instruction, Options, Pair, SharedOf, block_scale};
use crate::error::{Fault, Kind, Result};
use crate::float::{F16, Rounding};
use crate::matrix::{Element, Layout, Major, MatrixDescriptor, Packing, Swizzle, multiply_f32, multiply_s32};
use crate::tmem::Width;

/// Bytes of K of every instruction.
const K_BYTES: u32 = 32;

/// Where A lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Shared memory; each CTA of a pair applies the descriptor to its own.
    Shared(MatrixDescriptor),
    /// Address in Tensor Memory.
    Tmem(u32),
}

/// Operands of one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Address of D in Tensor Memory, the same in both CTAs of a pair.
    pub d: u32,
    /// A.
    pub a: Operand,
    /// B.
    pub b: MatrixDescriptor,
    /// Addresses of the scale factors of A and B, for block-scaled kinds.
    pub scales: Option<(u32, u32)>,
    /// `enable-input-d`: the old D is added.
    pub enable_d: bool,
    /// `scale-input-d`: the old D is first divided by two to this power.
    pub scale_d: Option<u32>,
    /// `disable-output-lane`: no word, or four for each CTA; lanes whose bits are set keep their D.
    pub disabled_lanes: &'a [u32],
}

impl Instruction {
    /// Executes the product on the memories now.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`] and [`Kind::Descriptor`] for operands that do not fit the instruction,
    /// [`Kind::Unsupported`] as `options` say, [`Kind::Tmem`] for misplaced matrices, and those of the memories.
    pub fn execute<P: Pair>(&self, operands: &Operands, options: &Options, pair: &mut P) -> Result<()> {
        self.check(operands, options)?;
        let (ctas, n, k) = (self.ctas(), self.n as usize, self.k() as usize);
        let place = Place::of(self, operands.d)?;
        let mut b = vec![0f32; k * n];
        for cta in 0..ctas {
            let layout = self.layout(operands.b, self.major_b, self.b)?;
            let columns = n / ctas;
            layout.read_columns(columns, k, n, &mut SharedOf { pair, cta }, &mut b[cta * columns..])?;
        }
        let width = n / place.parts as usize;
        for cta in 0..ctas {
            let scales = match (operands.scales, self.scaling) {
                (Some((a, b)), Some(scaling)) => {
                    Some(block_scale::read(&scaling, a, b, place.rows, self.n, place.parts, cta, pair)?)
                }
                _ => None,
            };
            for part in 0..place.parts {
                let a = self.read_a(operands, options, &place, part, cta, pair)?;
                let first = part as usize * width;
                let columns = if place.parts == 1 { &b } else { &slice_columns(&b, n, first, width) };
                let mut d = self.read_d(operands, &place, part, width, cta, pair)?;
                match (&mut d, &scales) {
                    (Sums::Integers(d), _) => self.integers(width, &a, columns, d),
                    (Sums::Floats(d), None) => multiply_f32(width, k, &a, columns, d),
                    (Sums::Floats(d), Some(scales)) => scales.multiply(width, k, first, &a, columns, d),
                }
                self.write_d(operands, &place, part, width, cta, d, pair)?;
            }
        }
        Ok(())
    }

    fn check(&self, operands: &Operands, options: &Options) -> Result<()> {
        let refuse = |what: String| Fault::err(Kind::InvalidOperand, format!("tcgen05.mma of {:?} {what}", self.kind));
        if operands.scales.is_some() != self.scaling.is_some() {
            return refuse("with scale factors where it has none, or without".into());
        }
        if let Some(scale) = operands.scale_d {
            let has = matches!(self.kind, super::Kind::F16 | super::Kind::Tf32) && !self.weight_stationary;
            if scale > 15 || !has {
                return refuse(format!("with scale-input-d {scale}"));
            }
        }
        match operands.disabled_lanes.len() {
            0 => {}
            words if self.scaling.is_some() || self.weight_stationary || words != 4 * self.ctas() => {
                return refuse(format!("with {words} words of disabled lanes"));
            }
            8 if operands.disabled_lanes.iter().any(|&word| word != 0) => {
                options.pair_lane_mask.check("disable-output-lane of a pair")?;
            }
            _ => {}
        }
        if matches!(operands.a, Operand::Tmem(_)) && self.major_a == Major::Mn {
            return refuse("with a transposed A in Tensor Memory".into());
        }
        Ok(())
    }

    /// The layout of an operand in shared memory, if the swizzle goes with the type and its major index.
    fn layout(&self, descriptor: MatrixDescriptor, major: Major, element: Element) -> Result<Layout> {
        let atom = descriptor.swizzle == Swizzle::B128Atom32;
        let legal = match major {
            Major::K => !atom,
            Major::Mn => atom == (element == Element::Tf32),
        };
        if !legal {
            return Fault::err(
                Kind::Descriptor,
                format!("{:?} with {:?}-major operands of {element:?}", descriptor.swizzle, major),
            );
        }
        let layout = Layout { descriptor, major, element, packing: self.packing(element) };
        layout.check_span(K_BYTES)?;
        Ok(layout)
    }

    /// The CTA's rows of A, for one part of D.
    fn read_a<P: Pair>(
        &self,
        operands: &Operands,
        options: &Options,
        place: &Place,
        part: u32,
        cta: usize,
        pair: &mut P,
    ) -> Result<Vec<f32>> {
        let (rows, k) = (place.rows as usize, self.k() as usize);
        let mut a = vec![0f32; rows * k];
        match operands.a {
            Operand::Shared(descriptor) => {
                let layout = self.layout(descriptor, self.major_a, self.a)?;
                layout.read_rows(rows, k, &mut SharedOf { pair, cta }, &mut a)?;
            }
            Operand::Tmem(address) => {
                place.check_a(address, options)?;
                let packing = match self.packing(self.a) {
                    Packing::Padded16 => {
                        options.small_in_bytes.check("4- and 6-bit elements in Tensor Memory")?;
                        Packing::Byte
                    }
                    dense => dense,
                };
                let per_chunk = self.a.per_chunk(packing);
                let mut cells = [0u32; K_BYTES as usize / 4];
                for (row, values) in a.chunks_exact_mut(k).enumerate() {
                    pair.read_tmem(cta, place.lane(row as u32, part), address & 0xFFFF, Width::Full, &mut cells)?;
                    for (cells, values) in cells.chunks_exact(4).zip(values.chunks_exact_mut(per_chunk)) {
                        let mut chunk = [0; 16];
                        for (bytes, cell) in chunk.chunks_exact_mut(4).zip(cells) {
                            bytes.copy_from_slice(&cell.to_le_bytes());
                        }
                        self.a.decode(packing, &chunk, values);
                    }
                }
            }
        }
        if self.negate_a != self.negate_b {
            a.iter_mut().for_each(|value| *value = -*value);
        }
        Ok(a)
    }

    fn is_written(operands: &Operands, lane: u32, cta: usize) -> bool {
        let word = operands.disabled_lanes.get(4 * cta + lane as usize / 32).copied().unwrap_or(0);
        word >> (lane % 32) & 1 == 0
    }

    fn width(&self) -> Width {
        if self.d == Accumulator::F16 { Width::Low } else { Width::Full }
    }

    /// What the sums of one part start from. The old D of lanes that are not written does not matter.
    fn read_d<P: Pair>(
        &self,
        operands: &Operands,
        place: &Place,
        part: u32,
        width: usize,
        cta: usize,
        pair: &mut P,
    ) -> Result<Sums> {
        let mut cells = vec![0u32; place.rows as usize * width];
        if operands.enable_d {
            for (row, cells) in cells.chunks_exact_mut(width).enumerate() {
                let lane = place.lane(row as u32, part);
                if Self::is_written(operands, lane, cta) {
                    pair.read_tmem(cta, lane, operands.d & 0xFFFF, self.width(), cells)?;
                }
            }
        }
        let factor = 0.5f32.powi(operands.scale_d.unwrap_or(0) as i32);
        Ok(match self.d {
            Accumulator::S32 => Sums::Integers(cells.into_iter().map(|bits| bits as i32).collect()),
            Accumulator::F32 => Sums::Floats(cells.into_iter().map(|bits| f32::from_bits(bits) * factor).collect()),
            Accumulator::F16 => {
                Sums::Floats(cells.into_iter().map(|bits| F16.decode(bits & 0xFFFF) * factor).collect())
            }
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the coordinates of one part of D")]
    fn write_d<P: Pair>(
        &self,
        operands: &Operands,
        place: &Place,
        part: u32,
        width: usize,
        cta: usize,
        d: Sums,
        pair: &mut P,
    ) -> Result<()> {
        let cells: Vec<u32> = match d {
            Sums::Integers(d) => d.into_iter().map(|v| v as u32).collect(),
            Sums::Floats(d) if self.d == Accumulator::F16 => {
                d.into_iter().map(|v| F16.encode(v, Rounding::NearestEven, false, false)).collect()
            }
            Sums::Floats(d) => d.into_iter().map(f32::to_bits).collect(),
        };
        for (row, cells) in cells.chunks_exact(width).enumerate() {
            let lane = place.lane(row as u32, part);
            if Self::is_written(operands, lane, cta) {
                pair.write_tmem(cta, lane, operands.d & 0xFFFF, self.width(), cells)?;
            }
        }
        Ok(())
    }

    fn integers(&self, n: usize, a: &[f32], b: &[f32], d: &mut [i32]) {
        let exact = |values: &[f32]| values.iter().map(|v| *v as i32).collect::<Vec<_>>();
        // The product alone cannot overflow; only its addition to D wraps or saturates.
        let mut product = vec![0; d.len()];
        multiply_s32(n, self.k() as usize, &exact(a), &exact(b), &mut product);
        for (d, product) in d.iter_mut().zip(product) {
            *d = if self.saturate { d.saturating_add(product) } else { d.wrapping_add(product) };
        }
    }
}

enum Sums {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

fn slice_columns(b: &[f32], n: usize, first: usize, width: usize) -> Vec<f32> {
    b.chunks_exact(n).flat_map(|row| &row[first..first + width]).copied().collect()
}
