//! `tensormap.replace` (PTX ISA 9.7.9.26): one field of an object in memory changes.

use super::object::{
    ADDRESS, ATOMICITY, BOX, DIMS, ELEMENT_STRIDES, FILL, INTERLEAVE, MAX_RANK, OBJECT_BYTES, RANK, STRIDES, SWIZZLE,
    TYPE,
};
use crate::error::{Fault, Kind, Result};

/// A field and, where it is an array, the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum Field {
    GlobalAddress,
    Rank,
    BoxDim(u32),
    GlobalDim(u32),
    /// Entry 0 is the stride of dimension 1.
    GlobalStride(u32),
    ElementStride(u32),
    ElemType,
    InterleaveLayout,
    SwizzleMode,
    SwizzleAtomicity,
    FillMode,
}

impl Field {
    /// Writes `value` into the object, which need not be a valid map before or after: programs build maps field by
    /// field in zeroed memory. `rank` takes the rank less one.
    ///
    /// # Errors
    /// [`Kind::TensorMap`] for an entry that does not exist or a value that no map can have.
    pub fn replace(self, object: &mut [u8; OBJECT_BYTES], value: u64) -> Result<()> {
        let fault = || Fault::new(Kind::TensorMap, format!("tensormap.replace of {self:?} by {value:#x}"));
        let entry = |ord: u32, count: usize| if (ord as usize) < count { Ok(ord as usize) } else { Err(fault()) };
        let (at, bytes, limit) = match self {
            Field::GlobalAddress => (ADDRESS, 8, u64::MAX),
            Field::Rank => (RANK, 1, MAX_RANK as u64 - 1),
            Field::BoxDim(ord) => (BOX + 2 * entry(ord, MAX_RANK)?, 2, 256),
            Field::GlobalDim(ord) => (DIMS + 8 * entry(ord, MAX_RANK)?, 8, u32::MAX as u64),
            Field::GlobalStride(ord) => (STRIDES + 8 * entry(ord, MAX_RANK - 1)?, 8, (1 << 40) - 1),
            Field::ElementStride(ord) => (ELEMENT_STRIDES + entry(ord, MAX_RANK)?, 1, 8),
            Field::ElemType => (TYPE, 1, 15),
            Field::InterleaveLayout => (INTERLEAVE, 1, 2),
            Field::SwizzleMode => (SWIZZLE, 1, 3),
            Field::SwizzleAtomicity => (ATOMICITY, 1, 3),
            Field::FillMode => (FILL, 1, 1),
        };
        if value > limit {
            return Err(fault());
        }
        object[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DataType, TensorMap};
    use super::*;
    use crate::matrix::Swizzle;

    #[test]
    fn a_map_can_be_built_in_zeroed_memory() {
        let mut object = [0; OBJECT_BYTES];
        let fields = [
            (Field::GlobalAddress, 0x4000),
            (Field::Rank, 1),
            (Field::BoxDim(0), 32),
            (Field::BoxDim(1), 8),
            (Field::GlobalDim(0), 96),
            (Field::GlobalDim(1), 7),
            (Field::GlobalStride(0), 192),
            (Field::ElementStride(0), 1),
            (Field::ElementStride(1), 1),
            (Field::ElemType, 6),
            (Field::SwizzleMode, 2),
        ];
        for (field, value) in fields {
            assert!(TensorMap::from_bytes(&object).is_err());
            field.replace(&mut object, value).unwrap();
            if field == Field::ElementStride(1) {
                // Type u8 and no swizzle are zeros, so from here on it is a map.
                break;
            }
        }
        for (field, value) in &fields[9..] {
            field.replace(&mut object, *value).unwrap();
        }
        let map = TensorMap::from_bytes(&object).unwrap();
        assert_eq!((map.address, map.rank, map.data_type, map.swizzle), (0x4000, 2, DataType::F16, Swizzle::B64));
        assert_eq!((map.dims[1], map.strides[1], map.box_dims[0], map.box_dims[1]), (7, 192, 32, 8));
        assert!(Field::Rank.replace(&mut object, 5).is_err());
        assert!(Field::GlobalStride(4).replace(&mut object, 16).is_err());
        assert!(Field::BoxDim(0).replace(&mut object, 257).is_err());
    }
}
