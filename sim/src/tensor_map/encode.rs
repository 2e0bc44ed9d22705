//! The argument checks of `cuTensorMapEncodeTiled`.

use super::object::{DataType, Fill, Interleave, L2Promotion, MAX_RANK, OBJECT_ALIGNMENT, TensorMap};
use crate::error::{Fault, Kind, Result};
use crate::matrix::Swizzle;

/// The arguments, as the program passed them. Enumerations are the driver's numbers.
#[derive(Clone, Copy, Debug)]
pub struct EncodeTiled<'a> {
    /// Address of the object to write.
    pub object: u64,
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Number of dimensions.
    pub rank: u32,
    /// Global address.
    pub address: u64,
    /// `rank` sizes in elements.
    pub dims: &'a [u64],
    /// `rank - 1` strides in bytes, for dimensions 1 and up.
    pub strides: &'a [u64],
    /// `rank` box sizes in elements.
    pub box_dims: &'a [u32],
    /// `rank` traversal strides.
    pub element_strides: &'a [u32],
    /// `CUtensorMapInterleave`.
    pub interleave: u32,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`.
    pub l2: u32,
    /// `CUtensorMapFloatOOBfill`.
    pub fill: u32,
    /// Whether the device has the swizzle atoms and sub-byte types of compute capability 10.
    pub blackwell: bool,
}

fn refuse<T>(message: String) -> Result<T> {
    Fault::err(Kind::TensorMap, message)
}

impl EncodeTiled<'_> {
    /// The map.
    ///
    /// # Errors
    /// [`Kind::TensorMap`], where the driver returns `CUDA_ERROR_INVALID_VALUE`.
    pub fn encode(&self) -> Result<TensorMap> {
        if !self.object.is_multiple_of(OBJECT_ALIGNMENT) {
            return refuse(format!("the object at {:#x} is not {OBJECT_ALIGNMENT}-byte aligned", self.object));
        }
        let rank = self.rank as usize;
        if !(1..=MAX_RANK).contains(&rank) {
            return refuse(format!("rank {rank}: a map has 1 to {MAX_RANK} dimensions"));
        }
        if [self.dims.len(), self.box_dims.len(), self.element_strides.len(), self.strides.len() + 1]
            .iter()
            .any(|&len| len < rank)
        {
            return refuse(format!("arrays shorter than rank {rank}"));
        }
        let Some(data_type) = DataType::from_code(self.data_type) else {
            return refuse(format!("data type {}", self.data_type));
        };
        let interleave = match self.interleave {
            0 => Interleave::None,
            1 => Interleave::B16,
            2 => Interleave::B32,
            other => return refuse(format!("interleave {other}")),
        };
        let swizzle = match self.swizzle {
            0 => Swizzle::None,
            1 => Swizzle::B32,
            2 => Swizzle::B64,
            3 => Swizzle::B128,
            4 => Swizzle::B128Atom32,
            5 => Swizzle::B128Atom32Flip8,
            6 => Swizzle::B128Atom64,
            other => return refuse(format!("swizzle {other}")),
        };
        let l2 = match self.l2 {
            0 => L2Promotion::None,
            1 => L2Promotion::B64,
            2 => L2Promotion::B128,
            3 => L2Promotion::B256,
            other => return refuse(format!("L2 promotion {other}")),
        };
        let fill = match self.fill {
            0 => Fill::Zero,
            1 => Fill::Nan,
            other => return refuse(format!("out-of-bounds fill {other}")),
        };
        let atoms = matches!(swizzle, Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 | Swizzle::B128Atom64);
        let sub_byte = matches!(data_type, DataType::U4x16Align8) || data_type.is_padded();
        if !self.blackwell && (atoms || sub_byte) {
            return refuse(format!("{data_type:?} with {swizzle:?} needs compute capability 10"));
        }
        let pad = |d: usize, values: &[u32]| if d < rank { values[d] } else { 1 };
        let map = TensorMap {
            data_type,
            rank,
            address: self.address,
            dims: std::array::from_fn(|d| if d < rank { self.dims[d] } else { 1 }),
            strides: std::array::from_fn(|d| if d > 0 && d < rank { self.strides[d - 1] } else { 0 }),
            box_dims: std::array::from_fn(|d| pad(d, self.box_dims)),
            element_strides: std::array::from_fn(|d| pad(d, self.element_strides)),
            interleave,
            swizzle,
            l2,
            fill,
        };
        map.check()?;
        Ok(map)
    }
}

impl TensorMap {
    /// The rules that the fields obey among themselves.
    ///
    /// # Errors
    /// [`Kind::TensorMap`], with the first rule that is broken.
    pub fn check(&self) -> Result<()> {
        let TensorMap { data_type, rank, interleave, swizzle, .. } = *self;
        if interleave != Interleave::None && rank < 3 {
            return refuse(format!("interleave {interleave:?} needs rank 3, this is {rank}"));
        }
        let wide = interleave == Interleave::B32 || data_type.is_padded();
        let alignment = if wide { 32 } else { 16 };
        if !self.address.is_multiple_of(alignment) {
            return refuse(format!("global address {:#x} is not {alignment}-byte aligned", self.address));
        }
        for d in 0..rank {
            let (size, stride, extent, step) =
                (self.dims[d], self.strides[d], self.box_dims[d], self.element_strides[d]);
            if !(1..=1 << 32).contains(&size) {
                return refuse(format!("dimension {d} has {size} elements: 1 to 2^32 are allowed"));
            }
            if d > 0 && (!stride.is_multiple_of(alignment) || stride >= 1 << 40) {
                return refuse(format!(
                    "stride {stride} of dimension {d}: a multiple of {alignment} below 2^40 is needed"
                ));
            }
            if !(1..=256).contains(&extent) {
                return refuse(format!("box of {extent} elements in dimension {d}: 1 to 256 are allowed"));
            }
            let ignored = d == 0 && interleave == Interleave::None;
            if !ignored && !(1..=8).contains(&step) {
                return refuse(format!("element stride {step} of dimension {d}: 1 to 8 are allowed"));
            }
        }
        let multiple = match data_type {
            DataType::U4x16Align16 | DataType::U6x16Align16 => 128,
            DataType::U4x16Align8 => 2,
            _ => 1,
        };
        if !self.dims[0].is_multiple_of(multiple) {
            return refuse(format!(
                "dimension 0 of {} elements: {data_type:?} needs a multiple of {multiple}",
                self.dims[0]
            ));
        }
        if data_type.is_padded() && self.box_dims[0] != 128 {
            return refuse(format!("box of {} elements in dimension 0: {data_type:?} needs 128", self.box_dims[0]));
        }
        let inner = self.inner_bytes();
        if interleave == Interleave::None && !inner.is_multiple_of(16) {
            return refuse(format!("{inner} bytes in the inner dimension of the box: a multiple of 16 is needed"));
        }
        if interleave == Interleave::B32 && swizzle != Swizzle::B32 {
            return refuse("interleave of 32 bytes needs the 32-byte swizzle".into());
        }
        if swizzle != Swizzle::None && inner > swizzle.span() {
            return refuse(format!(
                "{inner} bytes in the inner dimension of the box do not fit the {}-byte span of the swizzle",
                swizzle.span()
            ));
        }
        if self.fill == Fill::Nan && !data_type.is_float() {
            return refuse(format!("NaN fill of {data_type:?}"));
        }
        Ok(())
    }

    /// Bytes that the inner dimension of the box takes in shared memory.
    pub fn inner_bytes(&self) -> u32 {
        let (elements, _, shared) = self.data_type.unit();
        // Rounded up, so that part of a unit does not vanish in the rules.
        self.box_dims[0].div_ceil(elements) * shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: EncodeTiled = EncodeTiled {
        object: 0x1000,
        data_type: 9,
        rank: 3,
        address: 0x7000_0000,
        dims: &[128, 1000, 8],
        strides: &[2048, 256],
        box_dims: &[64, 128, 1],
        element_strides: &[1, 1, 1],
        interleave: 0,
        swizzle: 3,
        l2: 2,
        fill: 0,
        blackwell: false,
    };

    #[test]
    fn a_map_survives_its_encoding() {
        let map = GOOD.encode().unwrap();
        assert_eq!(map.data_type, DataType::Bf16);
        assert_eq!((map.dims, map.strides), ([128, 1000, 8, 1, 1], [0, 2048, 256, 0, 0]));
        assert_eq!(TensorMap::from_bytes(&map.to_bytes()).unwrap(), map);
        let largest = EncodeTiled {
            rank: 5,
            dims: &[1 << 32; 5],
            strides: &[(1 << 40) - 16; 4],
            box_dims: &[16, 256, 1, 2, 3],
            element_strides: &[1, 8, 7, 6, 5],
            swizzle: 6,
            fill: 1,
            blackwell: true,
            ..GOOD
        };
        let map = largest.encode().unwrap();
        assert_eq!(TensorMap::from_bytes(&map.to_bytes()).unwrap(), map);
    }

    #[test]
    fn jagged_maps_are_ragged() {
        assert!(!GOOD.encode().unwrap().is_ragged());
        let ragged = EncodeTiled {
            rank: 4,
            dims: &[64, 1 << 30, 8, i32::MAX as u64],
            strides: &[2048, 256, 2048],
            box_dims: &[64, 128, 1, 1],
            element_strides: &[1; 4],
            address: 0u64.wrapping_sub(2048 << 30),
            ..GOOD
        };
        assert!(ragged.encode().unwrap().is_ragged());
    }

    #[test]
    fn each_broken_rule_is_refused() {
        let cases: &[(&str, EncodeTiled)] = &[
            ("object", EncodeTiled { object: 32, ..GOOD }),
            ("rank", EncodeTiled { rank: 0, ..GOOD }),
            ("rank", EncodeTiled { rank: 6, ..GOOD }),
            ("data type", EncodeTiled { data_type: 16, ..GOOD }),
            ("interleave", EncodeTiled { interleave: 3, ..GOOD }),
            ("swizzle 7", EncodeTiled { swizzle: 7, ..GOOD }),
            ("L2", EncodeTiled { l2: 4, ..GOOD }),
            ("fill", EncodeTiled { fill: 2, ..GOOD }),
            ("compute capability", EncodeTiled { swizzle: 4, ..GOOD }),
            ("compute capability", EncodeTiled { data_type: 14, ..GOOD }),
            ("global address", EncodeTiled { address: 8, ..GOOD }),
            ("has 0 elements", EncodeTiled { dims: &[128, 0, 8], ..GOOD }),
            ("elements: 1 to", EncodeTiled { dims: &[128, (1 << 32) + 1, 8], ..GOOD }),
            ("stride 2040", EncodeTiled { strides: &[2040, 256], ..GOOD }),
            ("stride", EncodeTiled { strides: &[1 << 40, 256], ..GOOD }),
            ("box of 0", EncodeTiled { box_dims: &[64, 0, 1], ..GOOD }),
            ("box of 257", EncodeTiled { box_dims: &[64, 257, 1], ..GOOD }),
            ("element stride 9", EncodeTiled { element_strides: &[1, 9, 1], ..GOOD }),
            ("element stride 0", EncodeTiled { element_strides: &[1, 0, 1], ..GOOD }),
            ("24 bytes", EncodeTiled { box_dims: &[12, 1, 1], ..GOOD }),
            ("do not fit", EncodeTiled { box_dims: &[128, 1, 1], ..GOOD }),
            ("do not fit", EncodeTiled { swizzle: 1, ..GOOD }),
            ("interleave", EncodeTiled { interleave: 1, rank: 2, ..GOOD }),
            ("needs the 32-byte", EncodeTiled { interleave: 2, swizzle: 0, strides: &[2048, 256], ..GOOD }),
            ("NaN", EncodeTiled { data_type: 1, fill: 1, ..GOOD }),
            ("multiple of 128", EncodeTiled { data_type: 14, dims: &[192, 1, 1], blackwell: true, ..GOOD }),
            ("needs 128", EncodeTiled { data_type: 14, blackwell: true, ..GOOD }),
        ];
        for (what, case) in cases {
            let fault = case.encode().unwrap_err();
            assert_eq!(fault.kind, Kind::TensorMap);
            assert!(fault.message.contains(what), "{what}: {}", fault.message);
        }
        assert!(EncodeTiled { element_strides: &[0, 1, 1], ..GOOD }.encode().is_ok(), "stride 0 is ignored there");
        assert!(EncodeTiled { strides: &[0, 256], ..GOOD }.encode().is_ok(), "broadcast");
    }

    #[test]
    fn other_bytes_are_no_map() {
        assert!(TensorMap::from_bytes(&[0; 128]).is_err());
        assert!(TensorMap::from_bytes(&[0xA5; 128]).is_err());
        let mut bytes = GOOD.encode().unwrap().to_bytes();
        bytes[127] = 1;
        assert!(TensorMap::from_bytes(&bytes).is_err());
    }
}
