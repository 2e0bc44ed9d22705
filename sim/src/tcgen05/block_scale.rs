//! Scale factors of block-scaled products (PTX ISA 9.7.16.10.7): their place in Tensor Memory and their use.

use super::{Pair, Scaling};
use crate::error::{Fault, Kind, Result};
use crate::float::{ue4m3, ue8m0};
use crate::matrix::multiply_f32;
use crate::tmem::Width;

/// Partitions of 32 lanes, each of which holds the factors.
const PARTITIONS: u32 = 4;

/// The factors of one CTA: `[row][block]` of A, `[column][block]` of B.
pub(super) struct Scales {
    per_row: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

/// Reads the factors of `rows` rows of A and `n` columns of B; D lies in `parts` parts of N.
///
/// # Errors
/// [`Kind::Tmem`] for an address with a lane, or factors that differ between the partitions that hold copies; those of
/// the memory.
#[expect(clippy::too_many_arguments, reason = "addresses and extents of two operands")]
pub(super) fn read<P: Pair>(
    scaling: &Scaling,
    a: u32,
    b: u32,
    rows: u32,
    n: u32,
    parts: u32,
    cta: usize,
    pair: &mut P,
) -> Result<Scales> {
    for address in [a, b] {
        if address >> 16 != 0 {
            return Fault::err(Kind::Tmem, format!("scale factors at lane {} of Tensor Memory", address >> 16));
        }
    }
    let all: Vec<u32> = (0..PARTITIONS).collect();
    let a = vectors(scaling, scaling.a_id, a, rows, &all, cta, pair)?;
    // Where D lies in two parts, so do the factors of B: half of N in the lower partitions, half in the upper.
    let mut b_factors = Vec::new();
    for part in 0..parts {
        let each = PARTITIONS / parts;
        let partitions = &all[(part * each) as usize..((part + 1) * each) as usize];
        b_factors.extend(vectors(scaling, scaling.b_id, b, n / parts, partitions, cta, pair)?);
    }
    Ok(Scales { per_row: scaling.per_row as usize, a, b: b_factors })
}

/// Factors of `count` rows or columns: number x in lane x % 32 of each partition, column x / 32, bytes from `id`.
fn vectors<P: Pair>(
    scaling: &Scaling,
    id: u32,
    address: u32,
    count: u32,
    partitions: &[u32],
    cta: usize,
    pair: &mut P,
) -> Result<Vec<f32>> {
    let per_row = scaling.per_row as usize;
    let mut factors = vec![0f32; count as usize * per_row];
    let mask = if per_row == 4 { u32::MAX } else { ((1 << (8 * per_row)) - 1) << (8 * id) };
    for lane in 0..count.min(32) {
        let columns = (count - lane).div_ceil(32) as usize;
        let (mut first, mut copy) = ([0u32; 8], [0u32; 8]);
        for (i, partition) in partitions.iter().enumerate() {
            let cells = if i == 0 { &mut first } else { &mut copy };
            pair.read_tmem(cta, lane + 32 * partition, address, Width::Full, &mut cells[..columns])?;
            if i > 0 && first[..columns].iter().zip(&copy).any(|(a, b)| (a ^ b) & mask != 0) {
                return Fault::err(
                    Kind::Tmem,
                    format!(
                        "scale factors at column {address} differ between lanes {} and {}",
                        lane + 32 * partitions[0],
                        lane + 32 * partition
                    ),
                );
            }
        }
        for (column, cell) in first[..columns].iter().enumerate() {
            let bytes = cell.to_le_bytes();
            let at = (32 * column + lane as usize) * per_row;
            for (factor, &code) in factors[at..at + per_row].iter_mut().zip(&bytes[id as usize..]) {
                *factor = if scaling.ue4m3 { ue4m3(code) } else { ue8m0(code) };
            }
        }
    }
    Ok(factors)
}

impl Scales {
    /// d += (a scaled) (b scaled), for `n` columns from column `first` of B on. The sum of each block is scaled as a
    /// whole, in f64, so that factors out of the range of f32 do no harm on the way.
    pub(super) fn multiply(&self, n: usize, k: usize, first: usize, a: &[f32], b: &[f32], d: &mut [f32]) {
        let block = k / self.per_row;
        for s in 0..self.per_row {
            let part: Vec<f32> = a.chunks_exact(k).flat_map(|row| &row[s * block..(s + 1) * block]).copied().collect();
            let mut sums = vec![0f32; d.len()];
            multiply_f32(n, block, &part, &b[s * block * n..(s + 1) * block * n], &mut sums);
            let columns: Vec<f64> = (first..first + n).map(|j| self.b[j * self.per_row + s] as f64).collect();
            for (row, (d, sums)) in d.chunks_exact_mut(n).zip(sums.chunks_exact(n)).enumerate() {
                let factor = self.a[row * self.per_row + s] as f64;
                for ((d, sum), column) in d.iter_mut().zip(sums).zip(&columns) {
                    *d = (*d as f64 + *sum as f64 * factor * column) as f32;
                }
            }
        }
    }
}
