//! Types of instructions (PTX ISA, "Fundamental Types").

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    B128,
    F16,
    Bf16,
    F32,
    F64,
    F16x2,
    Bf16x2,
    F32x2,
    Tf32,
    E4m3x2,
    E5m2x2,
    Ue8m0x2,
    Pred,
}

impl Type {
    pub fn parse(name: &str) -> Option<Self> {
        use Type::*;
        Some(match name {
            "u8" => U8,
            "u16" => U16,
            "u32" => U32,
            "u64" => U64,
            "s8" => S8,
            "s16" => S16,
            "s32" => S32,
            "s64" => S64,
            "b8" => B8,
            "b16" => B16,
            "b32" => B32,
            "b64" => B64,
            "b128" => B128,
            "f16" => F16,
            "bf16" => Bf16,
            "f32" => F32,
            "f64" => F64,
            "f16x2" => F16x2,
            "bf16x2" => Bf16x2,
            "f32x2" => F32x2,
            "tf32" => Tf32,
            "e4m3x2" => E4m3x2,
            "e5m2x2" => E5m2x2,
            "ue8m0x2" => Ue8m0x2,
            "pred" => Pred,
            _ => return None,
        })
    }

    pub fn bits(self) -> u32 {
        use Type::*;
        match self {
            Pred => 1,
            U8 | S8 | B8 => 8,
            U16 | S16 | B16 | F16 | Bf16 | E4m3x2 | E5m2x2 | Ue8m0x2 => 16,
            U32 | S32 | B32 | F32 | F16x2 | Bf16x2 | Tf32 => 32,
            U64 | S64 | B64 | F64 | F32x2 => 64,
            B128 => 128,
        }
    }

    pub fn signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }
}
