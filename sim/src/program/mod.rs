//! The decoded form of a kernel: every name is a slot, every opcode a function or a small record.

mod alu;
mod compare;
mod convert;
mod decode;
mod float;
mod half;
mod integer;
mod matrix;
mod memory;
mod omit;
mod op;
mod operation;
mod registers;
mod sync;
mod types;
mod values;

pub use decode::{Kernel, decode};
pub use float::ftz;
pub use integer::{insert, lop3};
pub use op::{Constant, Lanes, Op, Pred, Slot};
pub use operation::{
    AsyncCopy, Atomic, AtomicOp, BulkOp, MbarrierOp, Multiply, ShuffleMode, StoreAsync, TensorOp, VoteMode, Wgmma,
    WgmmaA,
};

#[cfg(test)]
mod tests {
    /// `CUDASIM_PTX=FILE:FILE` names PTX that must decode.
    #[test]
    fn files_decode() {
        for path in std::env::var("CUDASIM_PTX").iter().flat_map(|list| list.split(':')) {
            let text = std::fs::read_to_string(path).unwrap();
            let module = crate::ptx::parse(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
            let lines = std::sync::Arc::new(text.lines().map(String::from).collect::<Vec<_>>());
            for entry in module.entries {
                let name = entry.name.clone();
                let registers = entry.registers.len();
                let kernel = super::decode(entry, lines.clone(), Vec::new());
                let kernel = kernel.unwrap_or_else(|e| panic!("{path}: {e}"));
                eprintln!(
                    "{name}: {} instructions, {registers} registers in {} slots",
                    kernel.code.len(),
                    kernel.slots
                );
            }
        }
    }

    const SAMPLE: &str = ".version 8.7\n.target sm_90a\n.address_size 64\n.global .align 4 .b8 g[8] = {1, 2};\n\
        .visible .entry k(.param .u64 a, .param .align 64 .b8 m[128])\n.maxntid 128, 1, 1\n{\n.reg .pred %p<4>;\n\
        .reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .b128 %q;\n.shared .align 16 .b8 s[64];\nld.param.u64 %d1, [a];\n\
        mov.b64 {%r1, %r2}, %d1;\n@!%p1 bra L;\nbar.red.popc.u32 %r3, 0, 128, %p1;\nsetp.lt.and.s32 %p2|%p3, %r1, -5, !%p1;\n\
        L: shfl.sync.bfly.b32 %r4|%p1, %r1, 1, 31, -1;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [s+8], 16;\n\
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {%r1, %r2}], [%r3];\n\
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1, %r2, %r3, %r4}, %d1, %d2, %p1, 1, 1, 0, 0;\n\
        tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, {%r1, %r1, %r1, %r1}, %p1;\ncvt.rn.f16x2.f32 %r1, %r2, 0f3F800000;\n\
        ld.shared.v4.u32 {%r1, %r2, %r3, _}, [%r4+-4];\natom.global.cas.b32 %r1, [%d1], %r2, 3;\nret;\n}\n";

    /// Damaged text is an error, never a panic.
    #[test]
    fn damaged_text_is_no_panic() {
        let mut random = crate::machine::Random::new(1);
        let pieces: Vec<&str> = SAMPLE.split_inclusive([' ', ',', '\n', '.']).collect();
        for _ in 0..20_000 {
            let mut damaged = pieces.clone();
            for _ in 0..1 + random.below(3) {
                let (to, from) = (random.below(damaged.len()), random.below(pieces.len()));
                match random.below(3) {
                    0 => damaged[to] = pieces[from],
                    1 => drop(damaged.remove(to)),
                    _ => damaged
                        .insert(to, ["{", "}", "-1", "%r9", "[", "0x", ".x0", "18446744073709551615"][random.below(8)]),
                }
            }
            let Ok(module) = crate::ptx::parse(&damaged.concat()) else { continue };
            let lines = std::sync::Arc::new(Vec::new());
            for entry in module.entries {
                let _ = super::decode(entry, lines.clone(), Vec::new());
            }
        }
    }
}
