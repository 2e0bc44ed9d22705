//! The 64-bit shared memory descriptor (PTX ISA 9.7.16.4.1).

use crate::error::{Fault, Kind, Result};
use crate::matrix::{MatrixDescriptor, Swizzle};

/// Bits that are zero: between the fields, and the constant above the leading-dimension mode.
const ZERO: u64 = 0b11 << 14 | 0b11 << 30 | 0xFF << 53;

/// Decodes a descriptor.
///
/// # Errors
/// [`Kind::Descriptor`] for a wrong constant, a swizzle code without meaning or bits outside the fields,
/// [`Kind::Unsupported`] for a base offset other than zero, whose effect on the swizzle is not established, and for
/// absolute leading dimensions, which sm_100 does not have.
pub fn decode_descriptor(bits: u64) -> Result<MatrixDescriptor> {
    let refuse = |what: String| Fault::err(Kind::Descriptor, format!("descriptor {bits:#018x} of tcgen05: {what}"));
    if bits >> 46 & 7 != 1 {
        return refuse(format!("bits 48:46 are {:#05b}, the constant is 0b001", bits >> 46 & 7));
    }
    if bits & ZERO != 0 {
        return refuse(format!("bits {:#x} outside its fields", bits & ZERO));
    }
    let swizzle = match bits >> 61 {
        0 => Swizzle::None,
        1 => Swizzle::B128Atom32,
        2 => Swizzle::B128,
        4 => Swizzle::B64,
        6 => Swizzle::B32,
        code => return refuse(format!("swizzle code {code}")),
    };
    let base_offset = bits >> 49 & 7;
    if swizzle != Swizzle::None && base_offset != 0 {
        return Fault::err(Kind::Unsupported, format!("descriptor {bits:#018x} with base offset {base_offset}"));
    }
    if bits >> 52 & 1 != 0 {
        return Fault::err(Kind::Unsupported, format!("descriptor {bits:#018x} with an absolute leading dimension"));
    }
    let field = |at: u32| (bits >> at & 0x3FFF) as u32 * 16;
    Ok(MatrixDescriptor { start: field(0), leading: field(16), stride: field(32), swizzle, base_offset: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let d = decode_descriptor(0x4000_4040_0001_1234).unwrap();
        assert_eq!(
            d,
            MatrixDescriptor { start: 0x12340, leading: 16, stride: 1024, swizzle: Swizzle::B128, base_offset: 0 }
        );
        let with = |bits: u64| decode_descriptor(bits | 1 << 46);
        assert_eq!(with(0).unwrap().swizzle, Swizzle::None);
        assert_eq!(with(1 << 61).unwrap().swizzle, Swizzle::B128Atom32);
        assert_eq!(with(4 << 61).unwrap().swizzle, Swizzle::B64);
        assert_eq!(with(6 << 61).unwrap().swizzle, Swizzle::B32);
        for code in [3, 5, 7] {
            assert_eq!(with(code << 61).unwrap_err().kind, Kind::Descriptor);
        }
        for bit in [14, 15, 30, 31, 47, 48, 53, 60] {
            assert_eq!(with(1 << bit).unwrap_err().kind, Kind::Descriptor, "{bit}");
        }
        // The two-bit code of wgmma for 128 bytes reads as another mode, but its constant is missing.
        assert_eq!(decode_descriptor(1 << 62).unwrap_err().kind, Kind::Descriptor);
        assert_eq!(with(2 << 61 | 1 << 49).unwrap_err().kind, Kind::Unsupported);
        assert_eq!(with(1 << 52).unwrap_err().kind, Kind::Unsupported);
    }
}
