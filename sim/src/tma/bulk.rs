//! Copies without a tensor map (PTX ISA 9.7.9.25.3 and 9.7.9.25.4).

use crate::error::{Fault, Kind, Result};

/// Checks a `cp.async.bulk` or `cp.reduce.async.bulk`; the ranges themselves are the memories' business.
///
/// # Errors
/// [`Kind::InvalidOperand`] for a size that is no multiple of 16, [`Kind::Misaligned`] for an address that is not.
pub fn check_bulk(destination: u64, source: u64, bytes: u32) -> Result<()> {
    if !bytes.is_multiple_of(16) {
        return Fault::err(Kind::InvalidOperand, format!("bulk copy of {bytes} bytes: a multiple of 16 is needed"));
    }
    for (address, name) in [(destination, "destination"), (source, "source")] {
        if !address.is_multiple_of(16) {
            return Fault::err(Kind::Misaligned, format!("{name} {address:#x} of a bulk copy is not 16-byte aligned"));
        }
    }
    Ok(())
}

/// Checks a non-bulk `cp.async` and returns the bytes that it reads; the rest of `cp_size` is zero.
///
/// # Errors
/// [`Kind::InvalidOperand`] for a size other than 4, 8, 16 (16 alone for `.cg`) or a source longer than the
/// destination, [`Kind::Misaligned`].
pub fn check_non_bulk(
    destination: u64,
    source: u64,
    cp_size: u32,
    src_size: Option<u32>,
    ignore_source: bool,
    cg: bool,
) -> Result<u32> {
    let sizes: &[u32] = if cg { &[16] } else { &[4, 8, 16] };
    if !sizes.contains(&cp_size) {
        return Fault::err(Kind::InvalidOperand, format!("cp.async of {cp_size} bytes: {sizes:?} are allowed"));
    }
    let read = if ignore_source { 0 } else { src_size.unwrap_or(cp_size) };
    if read > cp_size {
        return Fault::err(Kind::InvalidOperand, format!("cp.async of {read} source bytes into {cp_size}"));
    }
    for (address, name) in [(destination, "destination"), (source, "source")] {
        if !address.is_multiple_of(cp_size as u64) {
            return Fault::err(
                Kind::Misaligned,
                format!("{name} {address:#x} of a {cp_size}-byte cp.async is not aligned to its size"),
            );
        }
    }
    Ok(read)
}

/// The runs `(first, bytes)` of a 16-byte chunk that `.cp_mask` selects, bit i standing for byte i.
pub fn masked_bytes(mask: u16) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = mask as u32;
    std::iter::from_fn(move || {
        let first = rest.trailing_zeros();
        if first >= 16 {
            return None;
        }
        let bytes = (rest >> first).trailing_ones();
        rest &= !(((1 << bytes) - 1) << first);
        Some((first, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_alignment() {
        assert!(check_bulk(32, 48, 1024).is_ok() && check_bulk(0, 0, 0).is_ok());
        assert_eq!(check_bulk(32, 48, 24).unwrap_err().kind, Kind::InvalidOperand);
        assert_eq!(check_bulk(8, 48, 16).unwrap_err().kind, Kind::Misaligned);
        assert_eq!(check_bulk(16, 40, 16).unwrap_err().kind, Kind::Misaligned);
        assert_eq!(check_non_bulk(16, 32, 16, Some(5), false, true).unwrap(), 5);
        assert_eq!(check_non_bulk(4, 8, 4, None, false, false).unwrap(), 4);
        assert_eq!(check_non_bulk(4, 8, 4, Some(4), true, false).unwrap(), 0);
        assert!(check_non_bulk(8, 8, 8, None, false, true).is_err());
        assert!(check_non_bulk(8, 8, 4, Some(5), false, false).is_err());
        assert!(check_non_bulk(8, 8, 16, None, false, false).is_err());
    }

    #[test]
    fn masks_become_runs() {
        assert_eq!(masked_bytes(0).count(), 0);
        assert_eq!(masked_bytes(0xFFFF).collect::<Vec<_>>(), [(0, 16)]);
        assert_eq!(masked_bytes(0b1000_0000_0111_0010).collect::<Vec<_>>(), [(1, 1), (4, 3), (15, 1)]);
    }
}
