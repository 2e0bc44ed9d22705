//! The object: its fields, and cudasim's own encoding of them.

use crate::error::{Fault, Kind, Result};
use crate::matrix::Swizzle;

/// Bytes of the object.
pub const OBJECT_BYTES: usize = 128;
/// Alignment that the driver and the instructions ask for.
pub const OBJECT_ALIGNMENT: u64 = 64;
/// Largest rank.
pub const MAX_RANK: usize = 5;

/// Element types, in the driver's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "names of the driver's enumeration")]
pub enum DataType {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    F32Ftz,
    Tf32,
    Tf32Ftz,
    /// 4 bits, dense in both memories.
    U4x16Align8,
    /// 4 bits, dense in global memory, 8 bytes of data and 8 of padding per 16 elements in shared memory.
    U4x16Align16,
    /// 6 bits, dense in global memory, 12 bytes of data and 4 of padding per 16 elements in shared memory.
    U6x16Align16,
}

impl DataType {
    const ALL: [DataType; 16] = [
        DataType::U8,
        DataType::U16,
        DataType::U32,
        DataType::S32,
        DataType::U64,
        DataType::S64,
        DataType::F16,
        DataType::F32,
        DataType::F64,
        DataType::Bf16,
        DataType::F32Ftz,
        DataType::Tf32,
        DataType::Tf32Ftz,
        DataType::U4x16Align8,
        DataType::U4x16Align16,
        DataType::U6x16Align16,
    ];

    /// The type with this code of the driver and of `tensormap.replace`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// The smallest unit that is copied: its elements, its bytes in global and in shared memory.
    pub const fn unit(self) -> (u32, u32, u32) {
        match self {
            DataType::U8 => (1, 1, 1),
            DataType::U16 | DataType::F16 | DataType::Bf16 => (1, 2, 2),
            DataType::U64 | DataType::S64 | DataType::F64 => (1, 8, 8),
            DataType::U4x16Align8 => (2, 1, 1),
            DataType::U4x16Align16 => (16, 8, 16),
            DataType::U6x16Align16 => (16, 12, 16),
            _ => (1, 4, 4),
        }
    }

    /// Whether out-of-bounds elements can be NaN.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            DataType::F16
                | DataType::F32
                | DataType::F64
                | DataType::Bf16
                | DataType::F32Ftz
                | DataType::Tf32
                | DataType::Tf32Ftz
        )
    }

    /// Sub-byte types that are padded to 16 bytes.
    pub const fn is_padded(self) -> bool {
        matches!(self, DataType::U4x16Align16 | DataType::U6x16Align16)
    }
}

/// Interleaved layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "names of the driver's enumeration")]
pub enum Interleave {
    #[default]
    None,
    B16,
    B32,
}

/// Hint for the granularity of L2 fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "names of the driver's enumeration")]
pub enum L2Promotion {
    #[default]
    None,
    B64,
    B128,
    B256,
}

/// What loads put in place of elements that are out of bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fill {
    /// Zero.
    #[default]
    Zero,
    /// A NaN; the driver calls it `NAN_REQUEST_ZERO_FMA`.
    Nan,
}

/// A tiled tensor map. Dimension 0 is the contiguous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Element type.
    pub data_type: DataType,
    /// Dimensions, 1 to 5.
    pub rank: usize,
    /// Base address.
    pub address: u64,
    /// Elements per dimension, 1 to 2^32.
    pub dims: [u64; MAX_RANK],
    /// Bytes from one index to the next; entry 0 is not used.
    pub strides: [u64; MAX_RANK],
    /// Elements of the box per dimension, 1 to 256.
    pub box_dims: [u32; MAX_RANK],
    /// Traversal strides, 1 to 8.
    pub element_strides: [u32; MAX_RANK],
    /// Interleaved layout.
    pub interleave: Interleave,
    /// Swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    /// Hint.
    pub l2: L2Promotion,
    /// Out-of-bounds value.
    pub fill: Fill,
}

// Offsets of the fields in the object. Everything else is zero.
pub(super) const ADDRESS: usize = 0;
pub(super) const DIMS: usize = 8;
pub(super) const STRIDES: usize = 48;
pub(super) const BOX: usize = 80;
pub(super) const ELEMENT_STRIDES: usize = 90;
pub(super) const TYPE: usize = 95;
pub(super) const RANK: usize = 96;
pub(super) const INTERLEAVE: usize = 97;
pub(super) const SWIZZLE: usize = 98;
pub(super) const ATOMICITY: usize = 99;
pub(super) const L2: usize = 100;
pub(super) const FILL: usize = 101;
const USED: usize = 102;

impl TensorMap {
    /// The object. Its encoding is cudasim's; programs see it as opaque.
    pub fn to_bytes(&self) -> [u8; OBJECT_BYTES] {
        let mut bytes = [0; OBJECT_BYTES];
        bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&self.address.to_le_bytes());
        for d in 0..self.rank {
            bytes[DIMS + 8 * d..][..8].copy_from_slice(&self.dims[d].to_le_bytes());
            bytes[BOX + 2 * d..][..2].copy_from_slice(&(self.box_dims[d] as u16).to_le_bytes());
            bytes[ELEMENT_STRIDES + d] = self.element_strides[d] as u8;
            if d > 0 {
                bytes[STRIDES + 8 * (d - 1)..][..8].copy_from_slice(&self.strides[d].to_le_bytes());
            }
        }
        bytes[TYPE] = self.data_type as u8;
        bytes[RANK] = self.rank as u8 - 1;
        bytes[INTERLEAVE] = self.interleave as u8;
        (bytes[SWIZZLE], bytes[ATOMICITY]) = match self.swizzle {
            Swizzle::None => (0, 0),
            Swizzle::B32 => (1, 0),
            Swizzle::B64 => (2, 0),
            Swizzle::B128 => (3, 0),
            Swizzle::B128Atom32 => (3, 1),
            Swizzle::B128Atom32Flip8 => (3, 2),
            Swizzle::B128Atom64 => (3, 3),
        };
        bytes[L2] = self.l2 as u8;
        bytes[FILL] = self.fill as u8;
        bytes
    }

    /// Reads an object back, as an instruction does that uses it.
    ///
    /// # Errors
    /// [`Kind::TensorMap`] for bytes that are no map, or a map that `tensormap.replace` left incomplete or outside the
    /// rules of the encoding.
    pub fn from_bytes(bytes: &[u8; OBJECT_BYTES]) -> Result<Self> {
        let map = Self::fields(bytes)?;
        map.check()?;
        Ok(map)
    }

    fn fields(bytes: &[u8; OBJECT_BYTES]) -> Result<Self> {
        let word64 = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let bad = |what: &str| Fault::err(Kind::TensorMap, format!("these bytes are no tensor map: {what}"));
        if bytes[USED..].iter().any(|&b| b != 0) {
            return bad("reserved bytes are not zero");
        }
        let Some(data_type) = DataType::from_code(bytes[TYPE] as u32) else { return bad("element type") };
        let rank = bytes[RANK] as usize + 1;
        if rank > MAX_RANK {
            return bad("rank");
        }
        let interleave = match bytes[INTERLEAVE] {
            0 => Interleave::None,
            1 => Interleave::B16,
            2 => Interleave::B32,
            _ => return bad("interleave"),
        };
        let swizzle = match (bytes[SWIZZLE], bytes[ATOMICITY]) {
            (0, 0) => Swizzle::None,
            (1, 0) => Swizzle::B32,
            (2, 0) => Swizzle::B64,
            (3, 0) => Swizzle::B128,
            (3, 1) => Swizzle::B128Atom32,
            (3, 2) => Swizzle::B128Atom32Flip8,
            (3, 3) => Swizzle::B128Atom64,
            _ => return bad("swizzle mode and atomicity"),
        };
        let l2 = match bytes[L2] {
            0 => L2Promotion::None,
            1 => L2Promotion::B64,
            2 => L2Promotion::B128,
            3 => L2Promotion::B256,
            _ => return bad("L2 promotion"),
        };
        let fill = match bytes[FILL] {
            0 => Fill::Zero,
            1 => Fill::Nan,
            _ => return bad("fill mode"),
        };
        let used = |d: usize| d < rank;
        Ok(TensorMap {
            data_type,
            rank,
            address: word64(ADDRESS),
            dims: std::array::from_fn(|d| if used(d) { word64(DIMS + 8 * d) } else { 1 }),
            strides: std::array::from_fn(|d| if used(d) && d > 0 { word64(STRIDES + 8 * (d - 1)) } else { 0 }),
            box_dims: std::array::from_fn(|d| {
                if used(d) { u16::from_le_bytes([bytes[BOX + 2 * d], bytes[BOX + 2 * d + 1]]) as u32 } else { 1 }
            }),
            element_strides: std::array::from_fn(|d| if used(d) { bytes[ELEMENT_STRIDES + d] as u32 } else { 1 }),
            interleave,
            swizzle,
            l2,
            fill,
        })
    }

    /// Whether two dimensions walk the same memory, the form in which a jagged tensor is clipped at a sequence's end:
    /// such a map reaches far beyond its tensor, so that no bound of the map guards a wrong coordinate.
    pub fn is_ragged(&self) -> bool {
        let walks = |d: &usize| self.strides[*d] != 0 && self.dims[*d] > 1;
        (1..self.rank)
            .filter(walks)
            .any(|a| (a + 1..self.rank).filter(walks).any(|b| self.strides[a] == self.strides[b]))
    }
}
