//! Results of an H200 for random operands, equal to the bit.

use super::*;
use crate::matrix::Swizzle;

/// What one warp of an H200 computed by m64n8: for each type three distributions (exponents within 3 and 8 of one, and
/// within 3 with infinities, NaNs, zeros and subnormals). Per case A `[register][lane]`, B as eight rows by two chunks
/// in core matrices, C and D `[register][lane]`; f16 accumulators fill two registers of four.
const VECTORS: &[u8] = include_bytes!("../../tests/data/h200_wgmma.bin");
const CASE: usize = 3 * 512 + 256;

struct Image<'a>(&'a [u8]);

impl SharedRead for Image<'_> {
    fn read16(&mut self, address: u32) -> Result<[u8; 16]> {
        Ok(self.0[address as usize..][..16].try_into().unwrap())
    }
}

fn registers(bytes: &[u8]) -> [[u32; 32]; 4] {
    std::array::from_fn(|r| {
        std::array::from_fn(|t| u32::from_le_bytes(bytes[(r * 32 + t) * 4..][..4].try_into().unwrap()))
    })
}

#[test]
fn sums_are_those_of_the_hardware() {
    let types = [
        (Element::Bf16, Element::Bf16, Accumulator::F32),
        (Element::F16, Element::F16, Accumulator::F32),
        (Element::F16, Element::F16, Accumulator::F16),
        (Element::Tf32, Element::Tf32, Accumulator::F32),
        (Element::E4m3, Element::E4m3, Accumulator::F32),
        (Element::E5m2, Element::E5m2, Accumulator::F32),
        (Element::E4m3, Element::E4m3, Accumulator::F16),
    ];
    assert_eq!(VECTORS.len(), types.len() * 3 * CASE);
    let mut differs = 0;
    for (index, case) in VECTORS.chunks_exact(CASE).enumerate() {
        let (a, b, d) = types[index / 3];
        let instruction = Instruction {
            n: 8,
            d,
            a,
            b,
            negate_a: false,
            negate_b: false,
            major_a: Major::K,
            major_b: Major::K,
            satfinite: false,
        };
        let mut fragment = AFragment([[[0; 32]; 4]; 4]);
        fragment.0[0] = registers(&case[..512]);
        let (c, want) = (registers(&case[768..]), registers(&case[1280..]));
        let descriptor =
            MatrixDescriptor { start: 0, leading: 128, stride: 128, swizzle: Swizzle::None, base_offset: 0 };
        for arithmetic in [Arithmetic::Hopper, Arithmetic::Sequential] {
            let mut tile = Tile::new(d, 8);
            let count = instruction.accumulator_registers() as usize;
            (0..count).for_each(|r| tile.set_register(d, 8, 0, r, &c[r]));
            let operand = OperandA::Registers(&fragment);
            instruction
                .execute_with(arithmetic, operand, descriptor, true, &mut Image(&case[512..768]), &mut tile)
                .unwrap();
            for (r, want) in want.iter().enumerate().take(count) {
                let got = tile.register(d, 8, 0, r);
                match arithmetic {
                    Arithmetic::Hopper => assert_eq!(got, *want, "case {index}, {a:?} into {d:?}, register {r}"),
                    Arithmetic::Sequential => differs += got.iter().zip(want).filter(|(a, b)| a != b).count(),
                }
            }
        }
    }
    // The vectors tell the two apart.
    assert!(differs > 100, "{differs}");
}
