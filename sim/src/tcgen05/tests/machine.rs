//! Memories of two CTAs, and elements put where the formulas of the layouts say.

use crate::error::{Fault, Kind, Result};
use crate::float::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, Format, Rounding};
use crate::matrix::{Element, Layout, Major, Swizzle};
use crate::tcgen05::Pair;
use crate::tmem::{TensorMemory, Width};

const SHARED: usize = 224 * 1024;
pub(super) struct Machine {
    pub(super) shared: Vec<Vec<u8>>,
    pub(super) tmem: Vec<TensorMemory>,
}

impl Machine {
    pub(super) fn new() -> Self {
        let mut tmem = vec![TensorMemory::default(); 2];
        tmem.iter_mut().for_each(|tmem| assert_eq!(tmem.alloc(0, 512).unwrap(), Some(0)));
        Machine { shared: vec![vec![0; SHARED]; 2], tmem }
    }

    pub(super) fn cell(&self, cta: usize, lane: u32, column: u32, width: Width) -> u32 {
        self.tmem[cta].row(lane, column, 1, width).unwrap()[0]
    }
}

impl Pair for Machine {
    fn read_shared(&mut self, cta: usize, address: u32) -> Result<[u8; 16]> {
        match self.shared[cta].get(address as usize..address as usize + 16) {
            Some(bytes) => Ok(bytes.try_into().unwrap()),
            None => Fault::err(Kind::OutOfBounds, format!("{address:#x}")),
        }
    }

    fn read_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, out: &mut [u32]) -> Result<()> {
        self.tmem[cta].check_columns(0, column, out.len() as u32)?;
        out.copy_from_slice(self.tmem[cta].row(lane, column, out.len(), width)?);
        Ok(())
    }

    fn write_tmem(&mut self, cta: usize, lane: u32, column: u32, width: Width, values: &[u32]) -> Result<()> {
        self.tmem[cta].check_columns(0, column, values.len() as u32)?;
        self.tmem[cta].write_row(lane, column, values, width)
    }
}

pub(super) fn code(element: Element, value: f64) -> u32 {
    let encode = |format: Format| format.encode(value as f32, Rounding::NearestEven, true, false);
    match element {
        Element::F16 => encode(F16),
        Element::Bf16 => encode(BF16),
        Element::Tf32 => (value as f32).to_bits(),
        Element::E4m3 => encode(E4M3),
        Element::E5m2 => encode(E5M2),
        Element::E2m3 => encode(E2M3),
        Element::E3m2 => encode(E3M2),
        Element::E2m1 => encode(E2M1),
        Element::S8 | Element::U8 => value as i32 as u32 & 0xFF,
    }
}

/// Puts element (mn, k) into a tile: rows of one swizzle span, or core matrices of 8 rows by 16 bytes.
pub(super) fn put(memory: &mut [u8], layout: &Layout, mn: u32, k: u32, value: f64) {
    let (d, bits) = (&layout.descriptor, layout.element.bits());
    let per_chunk = layout.element.per_chunk(layout.packing) as u32;
    let (row, chunk, i) =
        if layout.major == Major::K { (mn, k / per_chunk, k % per_chunk) } else { (k, mn / per_chunk, mn % per_chunk) };
    let offset = match (d.swizzle, layout.major) {
        (Swizzle::None, Major::K) => row % 8 * 16 + row / 8 * d.stride + chunk * d.leading,
        (Swizzle::None, Major::Mn) => row % 8 * 16 + row / 8 * d.leading + chunk * d.stride,
        (swizzle, _) => row * swizzle.span() + chunk * 16 % swizzle.span() + chunk * 16 / swizzle.span() * d.leading,
    };
    let at = d.swizzle.apply(d.start + offset) as usize;
    let word = u128::from_le_bytes(memory[at..at + 16].try_into().unwrap())
        | (code(layout.element, value) as u128) << (i * bits);
    memory[at..at + 16].copy_from_slice(&word.to_le_bytes());
}
