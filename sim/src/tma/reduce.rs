//! Reductions of bulk and tensor copies (PTX ISA 9.7.9.25.4.2 and 9.7.9.25.5.3).

use crate::error::{Fault, Kind, Result};
use crate::float::{BF16, F16, Format, Rounding};
use crate::tensor_map::DataType;

/// Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum ReduceOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum ReduceType {
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
    B32,
    B64,
}

impl ReduceType {
    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            ReduceType::F16 | ReduceType::Bf16 => 2,
            ReduceType::U64 | ReduceType::S64 | ReduceType::F64 | ReduceType::B64 => 8,
            _ => 4,
        }
    }

    /// The type of a tensor reduction, which follows from the map.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`] for element types without arithmetic.
    pub fn of_map(data_type: DataType) -> Result<Self> {
        match data_type {
            DataType::U32 => Ok(ReduceType::U32),
            DataType::S32 => Ok(ReduceType::S32),
            DataType::U64 => Ok(ReduceType::U64),
            DataType::S64 => Ok(ReduceType::S64),
            DataType::F16 => Ok(ReduceType::F16),
            DataType::Bf16 => Ok(ReduceType::Bf16),
            DataType::F32 | DataType::F32Ftz => Ok(ReduceType::F32),
            DataType::F64 => Ok(ReduceType::F64),
            other => Fault::err(Kind::InvalidOperand, format!("tensor reduction on {other:?}")),
        }
    }
}

impl ReduceOp {
    /// Whether the operation exists for a type, in a reduction to the shared memory of a cluster or to global memory.
    ///
    /// # Errors
    /// [`Kind::InvalidOperand`].
    pub fn check(self, ty: ReduceType, to_shared: bool) -> Result<()> {
        use ReduceType::*;
        let allowed: &[ReduceType] = match (self, to_shared) {
            (ReduceOp::Add, true) => &[U32, S32, U64],
            (ReduceOp::Add, false) => &[U32, S32, U64, S64, F16, Bf16, F32, F64],
            (ReduceOp::Min | ReduceOp::Max, true) => &[U32, S32],
            (ReduceOp::Min | ReduceOp::Max, false) => &[U32, S32, U64, S64, F16, Bf16],
            (ReduceOp::Inc | ReduceOp::Dec, _) => &[U32],
            (ReduceOp::And | ReduceOp::Or | ReduceOp::Xor, true) => &[B32, U32, S32],
            (ReduceOp::And | ReduceOp::Or | ReduceOp::Xor, false) => &[B32, B64, U32, S32, U64, S64],
        };
        if allowed.contains(&ty) {
            return Ok(());
        }
        Fault::err(Kind::InvalidOperand, format!("bulk reduction {self:?} of {ty:?}"))
    }

    /// target = target op operand, element by element. Both hold the same number of whole elements; each element is
    /// atomic by itself.
    pub fn apply(self, ty: ReduceType, target: &mut [u8], operand: &[u8]) {
        match ty {
            ReduceType::F16 => each(target, operand, |a, b| self.narrow(F16, a, b)),
            ReduceType::Bf16 => each(target, operand, |a, b| self.narrow(BF16, a, b)),
            ReduceType::F32 => each(target, operand, |a: [u8; 4], b| {
                // Additions of f32 in global memory flush subnormals, those of the other types do not.
                let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
                flush(flush(f32::from_le_bytes(a)) + flush(f32::from_le_bytes(b))).to_le_bytes()
            }),
            ReduceType::F64 => {
                each(target, operand, |a: [u8; 8], b| (f64::from_le_bytes(a) + f64::from_le_bytes(b)).to_le_bytes());
            }
            ReduceType::U32 | ReduceType::B32 => each(target, operand, |a, b| {
                (self.unsigned(u32::from_le_bytes(a) as u64, u32::from_le_bytes(b) as u64) as u32).to_le_bytes()
            }),
            ReduceType::U64 | ReduceType::B64 => {
                each(target, operand, |a, b| self.unsigned(u64::from_le_bytes(a), u64::from_le_bytes(b)).to_le_bytes());
            }
            ReduceType::S32 => each(target, operand, |a, b| {
                (self.signed(i32::from_le_bytes(a) as i64, i32::from_le_bytes(b) as i64) as i32).to_le_bytes()
            }),
            ReduceType::S64 => {
                each(target, operand, |a, b| self.signed(i64::from_le_bytes(a), i64::from_le_bytes(b)).to_le_bytes());
            }
        }
    }

    fn unsigned(self, a: u64, b: u64) -> u64 {
        match self {
            ReduceOp::Add => a.wrapping_add(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
            ReduceOp::Inc => {
                if a >= b {
                    0
                } else {
                    a + 1
                }
            }
            ReduceOp::Dec => {
                if a == 0 || a > b {
                    b
                } else {
                    a - 1
                }
            }
            ReduceOp::And => a & b,
            ReduceOp::Or => a | b,
            ReduceOp::Xor => a ^ b,
        }
    }

    fn signed(self, a: i64, b: i64) -> i64 {
        match self {
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
            _ => self.unsigned(a as u64, b as u64) as i64,
        }
    }

    fn narrow(self, format: Format, a: [u8; 2], b: [u8; 2]) -> [u8; 2] {
        let value = |bytes: [u8; 2]| format.decode(u16::from_le_bytes(bytes) as u32);
        let (x, y) = (value(a), value(b));
        // f32 has more than twice the digits of both formats, so that the second rounding changes nothing.
        let result = match self {
            ReduceOp::Min if x.is_nan() || y < x || (x == y && y.is_sign_negative()) => y,
            ReduceOp::Max if x.is_nan() || y > x || (x == y && y.is_sign_positive()) => y,
            ReduceOp::Min | ReduceOp::Max => x,
            _ => x + y,
        };
        (format.encode(result, Rounding::NearestEven, false, false) as u16).to_le_bytes()
    }
}

fn each<const N: usize>(target: &mut [u8], operand: &[u8], op: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    for (target, operand) in target.as_chunks_mut::<N>().0.iter_mut().zip(operand.as_chunks::<N>().0) {
        *target = op(*target, *operand);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<T: Copy, const N: usize>(
        op: ReduceOp,
        ty: ReduceType,
        a: T,
        b: T,
        to: fn(T) -> [u8; N],
        from: fn([u8; N]) -> T,
    ) -> T {
        let mut target = to(a);
        assert_eq!(N, ty.size());
        op.apply(ty, &mut target, &to(b));
        from(target)
    }

    #[test]
    fn integers() {
        let u32s = |op, a, b| on(op, ReduceType::U32, a, b, u32::to_le_bytes, u32::from_le_bytes);
        assert_eq!((u32s(ReduceOp::Add, u32::MAX, 2), u32s(ReduceOp::Max, 3, u32::MAX)), (1, u32::MAX));
        assert_eq!((u32s(ReduceOp::Inc, 4, 5), u32s(ReduceOp::Inc, 5, 5)), (5, 0));
        assert_eq!((u32s(ReduceOp::Dec, 0, 5), u32s(ReduceOp::Dec, 6, 5), u32s(ReduceOp::Dec, 5, 5)), (5, 5, 4));
        assert_eq!((u32s(ReduceOp::And, 6, 3), u32s(ReduceOp::Or, 6, 3), u32s(ReduceOp::Xor, 6, 3)), (2, 7, 5));
        let s32s = |op, a, b| on(op, ReduceType::S32, a, b, i32::to_le_bytes, i32::from_le_bytes);
        assert_eq!((s32s(ReduceOp::Min, -5, 3), s32s(ReduceOp::Max, -5, 3), s32s(ReduceOp::Add, -5, 3)), (-5, 3, -2));
        let s64s = |op, a, b| on(op, ReduceType::S64, a, b, i64::to_le_bytes, i64::from_le_bytes);
        assert_eq!(s64s(ReduceOp::Min, i64::MIN, 3), i64::MIN);
    }

    #[test]
    fn floats() {
        let f32s = |a, b| on(ReduceOp::Add, ReduceType::F32, a, b, f32::to_le_bytes, f32::from_le_bytes);
        assert_eq!(f32s(1.5, 2.0), 3.5);
        assert_eq!(f32s(-1e-40, -1e-40).to_bits(), (-0f32).to_bits());
        let f64s = |a, b| on(ReduceOp::Add, ReduceType::F64, a, b, f64::to_le_bytes, f64::from_le_bytes);
        assert_eq!(f64s(1.0, 1e-16), 1.0);
        let f16s = |op, a: f32, b: f32| {
            let half = |x| half::f16::from_f32(x).to_le_bytes();
            let mut target = half(a);
            op_apply(op, &mut target, &half(b));
            half::f16::from_le_bytes(target).to_f32()
        };
        fn op_apply(op: ReduceOp, target: &mut [u8], operand: &[u8]) {
            op.apply(ReduceType::F16, target, operand);
        }
        assert_eq!((f16s(ReduceOp::Add, 2048.0, 1.0), f16s(ReduceOp::Max, f32::NAN, 1.0)), (2048.0, 1.0));
        assert_eq!(f16s(ReduceOp::Add, 6e-8, 6e-8), 2f32.powi(-23), "subnormals are kept");
        assert_eq!(
            (f16s(ReduceOp::Min, -0.0, 0.0).to_bits(), f16s(ReduceOp::Max, -0.0, 0.0).to_bits()),
            ((-0f32).to_bits(), 0)
        );
    }

    #[test]
    fn types_that_do_not_exist() {
        assert!(
            ReduceOp::Add.check(ReduceType::F32, false).is_ok() && ReduceOp::Add.check(ReduceType::F32, true).is_err()
        );
        assert!(
            ReduceOp::Min.check(ReduceType::F32, false).is_err()
                && ReduceOp::Inc.check(ReduceType::S32, false).is_err()
        );
        assert!(ReduceType::of_map(DataType::U8).is_err());
        assert_eq!(ReduceType::of_map(DataType::F32Ftz).unwrap(), ReduceType::F32);
    }
}
