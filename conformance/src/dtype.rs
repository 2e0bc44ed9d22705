//! Element types, as the tables name them.

use half::{bf16, f16};

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
}

impl Dtype {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp32 => "fp32",
        }
    }

    /// Its jfa_dtype.
    pub fn code(self) -> i32 {
        match self {
            Dtype::Bf16 => 1,
            Dtype::Fp16 => 2,
            Dtype::Fp32 => 3,
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::Bf16 | Dtype::Fp16 => 2,
            Dtype::Fp32 => 4,
        }
    }

    /// The nearest value that this type holds.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Dtype::Bf16 => bf16::from_f32(value).to_f32(),
            Dtype::Fp16 => f16::from_f32(value).to_f32(),
            Dtype::Fp32 => value,
        }
    }

    /// Appends the bytes of `values`.
    pub fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        for &value in values {
            match self {
                Dtype::Bf16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
                Dtype::Fp16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
                Dtype::Fp32 => bytes.extend(value.to_le_bytes()),
            }
        }
    }

    /// Appends the values of `bytes`.
    pub fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        match self {
            Dtype::Bf16 => values.extend(bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32())),
            Dtype::Fp16 => values.extend(bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32())),
            Dtype::Fp32 => values.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        }
    }

    /// Largest relative Frobenius error of a result in this type.
    pub fn tolerance(self) -> f64 {
        match self {
            Dtype::Bf16 => 4e-3,
            Dtype::Fp16 => 6e-4,
            Dtype::Fp32 => 2e-6,
        }
    }
}
