//! The 64-bit matrix descriptor of wgmma (PTX ISA 9.7.15.5.1.2.2).

use crate::error::{Fault, Kind, Result};
use crate::matrix::{MatrixDescriptor, Swizzle};

/// Bits that belong to no field.
const RESERVED: u64 = !(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62);

/// Decodes a descriptor.
///
/// # Errors
/// [`Kind::Descriptor`] for bits outside the fields.
pub fn decode_descriptor(bits: u64) -> Result<MatrixDescriptor> {
    if bits & RESERVED != 0 {
        return Fault::err(
            Kind::Descriptor,
            format!("descriptor {bits:#018x} of wgmma has bits {:#x} outside its fields", bits & RESERVED),
        );
    }
    let field = |at: u32| (bits >> at & 0x3FFF) as u32 * 16;
    let swizzle = match bits >> 62 {
        0 => Swizzle::None,
        1 => Swizzle::B128,
        2 => Swizzle::B64,
        _ => Swizzle::B32,
    };
    let base_offset = if swizzle == Swizzle::None { 0 } else { (bits >> 49 & 7) as u32 };
    Ok(MatrixDescriptor { start: field(0), leading: field(16), stride: field(32), swizzle, base_offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let d = decode_descriptor(0x4000_0040_0400_1234).unwrap();
        assert_eq!(
            d,
            MatrixDescriptor { start: 0x12340, leading: 16384, stride: 1024, swizzle: Swizzle::B128, base_offset: 0 }
        );
        assert_eq!(decode_descriptor(2 << 62).unwrap().swizzle, Swizzle::B64);
        assert_eq!(decode_descriptor(3 << 62).unwrap().swizzle, Swizzle::B32);
        assert_eq!(decode_descriptor(5 << 49).unwrap().base_offset, 0, "ignored without swizzle");
        assert_eq!(decode_descriptor(5 << 49 | 1 << 62).unwrap().base_offset, 5);
        for bit in [14, 15, 30, 31, 46, 47, 48, 52, 61] {
            assert_eq!(decode_descriptor(1 << bit).unwrap_err().kind, Kind::Descriptor);
        }
    }
}
