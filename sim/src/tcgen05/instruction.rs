//! The instruction descriptor (PTX ISA 9.7.16.4.2) and the shapes that exist (9.7.16.10).

use super::Options;
use crate::error::{Fault, Kind as FaultKind, Result};
use crate::matrix::{Element, Major, Packing};
use crate::tma::CtaGroup;

/// `.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names of the instruction's qualifiers")]
pub enum Kind {
    F16,
    Tf32,
    F8f6f4,
    I8,
    Mxf8f6f4,
    Mxf4,
    Mxf4nvf4,
}

/// Type of D.
pub use crate::wgmma::Accumulator;

/// Scale factors of a block-scaled product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// Factors per row and instruction (`.scale_vec::NX`).
    pub per_row: u32,
    /// UE4M3 in place of UE8M0.
    pub ue4m3: bool,
    /// First byte of A's factors in their column.
    pub a_id: u32,
    /// First byte of B's.
    pub b_id: u32,
}

/// A dense `tcgen05.mma`, decoded. M and N are those of the pair with `cta_group::2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Kind.
    pub kind: Kind,
    /// One CTA or a pair.
    pub group: CtaGroup,
    /// `.ws`.
    pub weight_stationary: bool,
    /// Rows of D.
    pub m: u32,
    /// Columns of D.
    pub n: u32,
    /// Type of A.
    pub a: Element,
    /// Type of B.
    pub b: Element,
    /// Type of D.
    pub d: Accumulator,
    /// Negate A.
    pub negate_a: bool,
    /// Negate B.
    pub negate_b: bool,
    /// Contiguous index of A.
    pub major_a: Major,
    /// Contiguous index of B.
    pub major_b: Major,
    /// Saturate integers.
    pub saturate: bool,
    /// Of block-scaled kinds.
    pub scaling: Option<Scaling>,
}

fn refuse<T>(what: String) -> Result<T> {
    Fault::err(FaultKind::Descriptor, what)
}

impl Kind {
    /// Whether scale factors multiply the operands.
    pub const fn is_block_scaled(self) -> bool {
        matches!(self, Kind::Mxf8f6f4 | Kind::Mxf4 | Kind::Mxf4nvf4)
    }

    fn element(self, code: u32) -> Option<Element> {
        match (self, code) {
            (Kind::F16, 0) => Some(Element::F16),
            (Kind::F16, 1) => Some(Element::Bf16),
            (Kind::Tf32, 2) => Some(Element::Tf32),
            (Kind::I8, 0) => Some(Element::U8),
            (Kind::I8, 1) => Some(Element::S8),
            (Kind::F8f6f4 | Kind::Mxf8f6f4, 0) => Some(Element::E4m3),
            (Kind::F8f6f4 | Kind::Mxf8f6f4, 1) => Some(Element::E5m2),
            (Kind::F8f6f4 | Kind::Mxf8f6f4, 3) => Some(Element::E2m3),
            (Kind::F8f6f4 | Kind::Mxf8f6f4, 4) => Some(Element::E3m2),
            (Kind::F8f6f4 | Kind::Mxf8f6f4, 5) => Some(Element::E2m1),
            (Kind::Mxf4 | Kind::Mxf4nvf4, 1) => Some(Element::E2m1),
            _ => None,
        }
    }

    /// Descriptor bits that are zero.
    const fn reserved(self) -> u32 {
        match self {
            // Saturation is for integers, negation for everything else.
            Kind::I8 => 1 << 6 | 0b11 << 13 | 1 << 23 | 1 << 29,
            Kind::F16 | Kind::Tf32 | Kind::F8f6f4 => 1 << 3 | 1 << 6 | 1 << 23 | 1 << 29,
            Kind::Mxf8f6f4 => 0b1011 | 1 << 6 | 0b111 << 24 | 1 << 31,
            Kind::Mxf4 | Kind::Mxf4nvf4 => 0b1011 | 1 << 6 | 1 << 12 | 0b11 << 15 | 0b111 << 24,
        }
    }
}

impl Instruction {
    /// Decodes a descriptor for an instruction of these qualifiers. `per_row` is the N of `.scale_vec::NX`, if written.
    ///
    /// # Errors
    /// [`FaultKind::Descriptor`] for reserved bits, types of another kind and shapes that do not exist,
    /// [`FaultKind::Unsupported`] for sparse products, K = 96 and what `options` refuse.
    pub fn decode(
        bits: u32,
        kind: Kind,
        group: CtaGroup,
        weight_stationary: bool,
        per_row: Option<u32>,
        options: &Options,
    ) -> Result<Self> {
        let field = |at: u32, width: u32| bits >> at & ((1 << width) - 1);
        if bits & kind.reserved() != 0 {
            return refuse(format!("bits {:#x} of {bits:#010x} are reserved in {kind:?}", bits & kind.reserved()));
        }
        if field(2, 1) != 0 || (!kind.is_block_scaled() && field(0, 2) != 0) {
            return Fault::err(FaultKind::Unsupported, format!("sparse tcgen05.mma ({bits:#010x})"));
        }
        let four_bit = matches!(kind, Kind::Mxf4 | Kind::Mxf4nvf4);
        if four_bit && field(31, 1) != 0 {
            return Fault::err(FaultKind::Unsupported, format!("{kind:?} with K = 96 ({bits:#010x})"));
        }
        if !kind.is_block_scaled() && !weight_stationary && field(30, 2) != 0 {
            return refuse(format!("a shift of B outside .ws ({bits:#010x})"));
        }
        if weight_stationary && field(30, 2) != 0 {
            return Fault::err(FaultKind::Unsupported, format!("tcgen05.mma.ws with a shift of B ({bits:#010x})"));
        }
        let (Some(a), Some(b)) = (kind.element(field(7, 3)), kind.element(field(10, 3))) else {
            return refuse(format!("types {} and {} in {kind:?} ({bits:#010x})", field(7, 3), field(10, 3)));
        };
        if kind == Kind::F16 && a != b {
            return refuse(format!("{a:?} by {b:?} in {kind:?} ({bits:#010x})"));
        }
        let d = match (kind, field(4, 2)) {
            _ if kind.is_block_scaled() => Accumulator::F32,
            (Kind::I8, 2) => Accumulator::S32,
            (Kind::F16 | Kind::Tf32 | Kind::F8f6f4, 1) => Accumulator::F32,
            (Kind::F16, 0) if a == Element::F16 => Accumulator::F16,
            (Kind::F8f6f4, 0) => {
                options.f8_into_f16.check("f16 accumulation of kind::f8f6f4")?;
                Accumulator::F16
            }
            (_, code) => return refuse(format!("type {code} of D in {kind:?} of {a:?} ({bits:#010x})")),
        };
        let major = |at| if field(at, 1) == 0 { Major::K } else { Major::Mn };
        let scaling = match kind.is_block_scaled() {
            true => Some(scaling(kind, per_row, field(23, 1), field(29, 2), field(4, 2))?),
            false if per_row.is_some() => return refuse(format!("{kind:?} has no scale factors")),
            false => None,
        };
        let instruction = Instruction {
            kind,
            group,
            weight_stationary,
            m: field(24, 5) * 16,
            n: field(17, 6) * 8,
            a,
            b,
            d,
            negate_a: field(13, 1) == 1,
            negate_b: field(14, 1) == 1,
            major_a: major(15),
            major_b: major(16),
            saturate: kind == Kind::I8 && field(3, 1) == 1,
            scaling,
        };
        instruction.check_shape()?;
        Ok(instruction)
    }

    fn check_shape(&self) -> Result<()> {
        let Instruction { kind, group, weight_stationary: ws, m, n, .. } = *self;
        let scaled = kind.is_block_scaled();
        let pair = group == CtaGroup::Two;
        if ws && (pair || scaled) {
            return refuse(format!(".ws of {kind:?} with {group:?}"));
        }
        let m_exists = match (ws, pair, scaled) {
            (true, ..) => [32, 64, 128].contains(&m),
            (_, true, _) => m == 128 || m == 256,
            (_, _, true) => m == 128,
            _ => m == 64 || m == 128,
        };
        let transposed_bytes = self.b.bits() == 8 && self.major_b == Major::Mn;
        let n_exists = match (ws, pair) {
            (true, _) => [64, 128, 256].contains(&n),
            (_, true) => n.is_multiple_of(if kind == Kind::I8 || transposed_bytes { 32 } else { 16 }),
            _ if transposed_bytes => n.is_multiple_of(16),
            _ if kind == Kind::I8 => n == 8 || n == 24 || n.is_multiple_of(16),
            _ => n.is_multiple_of(8),
        };
        if !m_exists || !n_exists || !(8..=256).contains(&n) {
            return refuse(format!("{m} x {n} of {kind:?} with {group:?}{}", if ws { " and .ws" } else { "" }));
        }
        for (element, major) in [(self.a, self.major_a), (self.b, self.major_b)] {
            if element.bits() < 8 && major == Major::Mn {
                return refuse(format!("transposed operand of {element:?}"));
            }
        }
        Ok(())
    }

    /// Depth of the product.
    pub const fn k(&self) -> u32 {
        match self.kind {
            Kind::F16 => 16,
            Kind::Tf32 => 8,
            Kind::F8f6f4 | Kind::I8 | Kind::Mxf8f6f4 => 32,
            Kind::Mxf4 | Kind::Mxf4nvf4 => 64,
        }
    }

    /// CTAs that take part.
    pub const fn ctas(&self) -> usize {
        if matches!(self.group, CtaGroup::Two) { 2 } else { 1 }
    }

    /// How elements of this type lie in shared memory.
    pub(super) fn packing(&self, element: Element) -> Packing {
        match self.kind {
            Kind::F8f6f4 | Kind::Mxf8f6f4 if element.bits() < 8 => Packing::Padded16,
            _ => Packing::Dense,
        }
    }
}

fn scaling(kind: Kind, per_row: Option<u32>, scale_type: u32, a_id: u32, b_id: u32) -> Result<Scaling> {
    let ue4m3 = scale_type == 0;
    let per_row = match (kind, per_row, ue4m3) {
        (Kind::Mxf8f6f4, None | Some(1), false) => 1,
        (Kind::Mxf4, None | Some(2), false) => 2,
        (Kind::Mxf4nvf4, Some(2), false) => 2,
        (Kind::Mxf4nvf4, Some(4), _) => 4,
        _ => {
            return refuse(format!(
                "{kind:?} with {per_row:?} scale factors per row of type {}",
                if ue4m3 { "UE4M3" } else { "UE8M0" }
            ));
        }
    };
    for id in [a_id, b_id] {
        if id % per_row != 0 {
            return refuse(format!("scale factor id {id} with {per_row} factors per row"));
        }
    }
    Ok(Scaling { per_row, ue4m3, a_id, b_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bits: u32, kind: Kind, group: CtaGroup) -> Result<Instruction> {
        Instruction::decode(bits, kind, group, false, None, &Options::default())
    }

    #[test]
    fn worked_values() {
        let i = decode(0x1020_0490, Kind::F16, CtaGroup::Two).unwrap();
        assert_eq!((i.m, i.n, i.a, i.b, i.d), (256, 128, Element::Bf16, Element::Bf16, Accumulator::F32));
        assert_eq!((i.major_a, i.major_b, i.k()), (Major::K, Major::K, 16));
        let i = decode(0x0821_0490, Kind::F16, CtaGroup::One).unwrap();
        assert_eq!((i.m, i.n, i.major_a, i.major_b), (128, 128, Major::K, Major::Mn));
    }

    #[test]
    fn shapes_of_the_table() {
        let at = |m: u32, n: u32, low: u32| low | (n / 8) << 17 | (m / 16) << 24;
        let f16 = |m, n, group| decode(at(m, n, 1 << 4), Kind::F16, group).is_ok();
        assert!(f16(64, 8, CtaGroup::One) && f16(128, 256, CtaGroup::One) && f16(128, 16, CtaGroup::Two));
        assert!(!f16(256, 64, CtaGroup::One) && !f16(64, 64, CtaGroup::Two) && !f16(128, 24, CtaGroup::Two));
        assert!(!f16(128, 0, CtaGroup::One) && !f16(96, 64, CtaGroup::One) && !f16(128, 264, CtaGroup::One));
        let i8 = |m, n, group| decode(at(m, n, 2 << 4 | 1 << 7), Kind::I8, group).is_ok();
        assert!(
            i8(64, 24, CtaGroup::One)
                && !i8(64, 40, CtaGroup::One)
                && i8(256, 32, CtaGroup::Two)
                && !i8(256, 48, CtaGroup::Two)
        );
        let ws = |m, n| {
            Instruction::decode(at(m, n, 1 << 4), Kind::F16, CtaGroup::One, true, None, &Options::default()).is_ok()
        };
        assert!(ws(32, 64) && ws(64, 256) && ws(128, 128) && !ws(32, 32) && !ws(256, 64));
        let f8 = |n, group| decode(at(128, n, 1 << 4 | 1 << 16), Kind::F8f6f4, group).is_ok();
        assert!(f8(16, CtaGroup::One) && !f8(24, CtaGroup::One) && f8(64, CtaGroup::Two) && !f8(48, CtaGroup::Two));
    }

    #[test]
    fn types_of_the_table() {
        let at = |low: u32| low | 8 << 17 | 8 << 24;
        let fault = |low, kind| decode(at(low), kind, CtaGroup::One).unwrap_err().kind;
        assert_eq!(fault(0, Kind::Tf32), FaultKind::Descriptor);
        assert_eq!(fault(1 << 4 | 1 << 7, Kind::F16), FaultKind::Descriptor, "mixed");
        assert_eq!(fault(1 << 7 | 1 << 10, Kind::F16), FaultKind::Descriptor, "bf16 into f16");
        assert_eq!(fault(1 << 4 | 2 << 7, Kind::F8f6f4), FaultKind::Descriptor);
        assert_eq!(fault(0, Kind::F8f6f4), FaultKind::Unsupported, "f16 accumulator");
        assert_eq!(fault(1 << 4 | 1 << 2, Kind::F16), FaultKind::Unsupported, "sparse");
        assert_eq!(fault(1 << 4 | 1 << 3, Kind::F16), FaultKind::Descriptor, "saturation");
        assert_eq!(fault(2 << 4 | 1 << 13, Kind::I8), FaultKind::Descriptor, "negation");
        assert_eq!(fault(1 << 4 | 1 << 30, Kind::F16), FaultKind::Descriptor, "shift");
        assert!(decode(at(1 << 4 | 3 << 7 | 5 << 10), Kind::F8f6f4, CtaGroup::One).is_ok());
        assert_eq!(fault(1 << 4 | 3 << 7 | 1 << 15, Kind::F8f6f4), FaultKind::Descriptor, "six bits, transposed");
    }

    #[test]
    fn scale_factors_of_the_table() {
        let at = |kind, low: u32, per_row| {
            Instruction::decode(low | 8 << 17 | 8 << 24, kind, CtaGroup::One, false, per_row, &Options::default())
                .map(|i| i.scaling.unwrap())
        };
        let four = 1 << 7 | 1 << 10;
        let e8 = 1 << 23;
        let s = at(Kind::Mxf8f6f4, e8 | 3 << 29 | 2 << 4, None).unwrap();
        assert_eq!(s, Scaling { per_row: 1, ue4m3: false, a_id: 3, b_id: 2 });
        assert_eq!(at(Kind::Mxf4, four | e8 | 2 << 29, None).unwrap().per_row, 2);
        assert_eq!(at(Kind::Mxf4nvf4, four, Some(4)).unwrap(), Scaling { per_row: 4, ue4m3: true, a_id: 0, b_id: 0 });
        assert!(at(Kind::Mxf4nvf4, four | e8, Some(2)).is_ok() && at(Kind::Mxf4nvf4, four | e8, Some(4)).is_ok());
        for (kind, low, per_row) in [
            (Kind::Mxf8f6f4, 0, None),
            (Kind::Mxf8f6f4, e8, Some(2)),
            (Kind::Mxf4, four | e8 | 1 << 29, None),
            (Kind::Mxf4, four, None),
            (Kind::Mxf4nvf4, four, Some(2)),
            (Kind::Mxf4nvf4, four | e8, None),
            (Kind::Mxf4nvf4, four | 2 << 4, Some(4)),
            (Kind::Mxf4, e8, None),
        ] {
            assert_eq!(
                at(kind, low, per_row).unwrap_err().kind,
                FaultKind::Descriptor,
                "{kind:?} {low:#x} {per_row:?}"
            );
        }
        assert_eq!(at(Kind::Mxf4, four | e8 | 1 << 31, None).unwrap_err().kind, FaultKind::Unsupported);
    }
}
