//! wgmma with each kind of operand, against plain loops over small integers, whose sums are exact.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{launch, matrix_map, source, threads};
use cudasim::harness::Shape;
use half::bf16;

const M: usize = 64;
const N: usize = 64;
const K: usize = 16;

fn a(m: usize, k: usize) -> f32 {
    ((m * 7 + k * 3) % 13) as f32 - 6.0
}

fn b(k: usize, n: usize) -> f32 {
    ((k * 5 + n * 11) % 17) as f32 - 8.0
}

/// 64 x 16 or 16 x 64 values of bf16, row after row.
fn rows(count: usize, width: usize, value: impl Fn(usize, usize) -> f32) -> Vec<u8> {
    (0..count * width).flat_map(|i| bf16::from_f32(value(i / width, i % width)).to_le_bytes()).collect()
}

/// Loads 32 rows of 128 bytes by the map, in boxes of 8 rows, to `%r29`.
const LOAD: &str = "setp.ne.u32 %p1, %r31, 0;
    @%p1 bra ready;
    mbarrier.init.shared::cta.b64 [%r28], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 4096;
    mov.b64 %d3, map;
    cvta.param.u64 %d3, %d3;
    mov.u32 %r8, 0;
    mov.u32 %r9, 0;
    next:
    shl.b32 %r10, %r8, 7;
    add.u32 %r10, %r29, %r10;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [%d3, {%r9, %r8}], [%r28];
    add.u32 %r8, %r8, 8;
    setp.lt.u32 %p4, %r8, 32;
    @%p4 bra next;
    ready:
    bar.sync 0;
    again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
    @!%p2 bra again;
    shr.u32 %r4, %r29, 4;
    and.b32 %r4, %r4, 16383;
    cvt.u64.u32 %d1, %r4;
    or.b64 %d1, %d1, 0x4000004000010000;
    add.u64 %d2, %d1, 128;
    wgmma.fence.sync.aligned;
";

fn accumulators() -> String {
    (0..32).map(|i| format!("%f{i}")).collect::<Vec<_>>().join(", ")
}

/// Waits, and stores the 32 accumulators of each thread.
fn finish() -> String {
    let mut text = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nshl.b32 %r1, %r31, 7;\n\
         cvt.u64.u32 %d4, %r1;\nadd.u64 %d4, %d31, %d4;\n"
        .to_string();
    for i in (0..32).step_by(4) {
        text += &format!("st.global.v4.f32 [%d4+{}], {{%f{i}, %f{}, %f{}, %f{}}};\n", 4 * i, i + 1, i + 2, i + 3);
    }
    text
}

#[track_caller]
fn check(body: &str, data: &[u8], swizzle: u32) {
    let text = source(&format!("{LOAD}{body}{}", finish()), "sm_90a", false);
    for seed in 0..8 {
        let shape = Shape { seed, ..threads(128) };
        let map = |at, _| matrix_map(at, 9, 2, [64, 32], [64, 8], swizzle);
        let out = launch(&text, shape, data, (&[], 4 * M * N), map).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for thread in 0..128 {
            for register in 0..32 {
                let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (register / 2 % 2);
                let column = 8 * (register / 4) + 2 * (thread % 4) + register % 2;
                let at = 4 * (32 * thread + register);
                let got = f32::from_le_bytes(out[at..at + 4].try_into().unwrap());
                let want: f32 = (0..K).map(|k| a(row, k) * b(k, column)).sum();
                assert_eq!(got, want, "({row}, {column})");
            }
        }
    }
}

/// As a gradient needs it: both operands lie with their rows of 64 along K.
#[test]
fn both_operands_transposed() {
    let data = [rows(K, M, |k, m| a(m, k)), rows(K, N, b)].concat();
    let body = format!(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{}}}, %d1, %d2, 0, 1, 1, 1, 1;\n",
        accumulators()
    );
    check(&body, &data, 3);
}

fn from_registers(matrix: &str) -> String {
    format!(
        "and.b32 %r11, %r31, 31;
        and.b32 %r12, %r31, 7;
        shr.u32 %r13, %r11, 4;
        bfe.u32 %r14, %r11, 3, 1;
        shl.b32 %r15, %r30, 4;
        {matrix}
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{}}}, {{%r20, %r21, %r22, %r23}}, %d2, 0, 1, 1, 1;\n",
        accumulators()
    )
}

/// A from registers, by `ldmatrix` from rows along K; B is transposed.
#[test]
fn a_from_registers() {
    let data = [rows(M, K, a), rows(K, N, b)].concat();
    // A row of A is 32 bytes, four of them to a line of 128 bytes, whose chunks the map has exchanged.
    let matrix = "mad.lo.u32 %r16, %r14, 8, %r15;
        add.u32 %r16, %r16, %r12;
        shl.b32 %r16, %r16, 5;
        mad.lo.u32 %r16, %r13, 16, %r16;
        add.u32 %r16, %r29, %r16;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r16];";
    let swizzled = "shr.u32 %r17, %r16, 3;
        and.b32 %r17, %r17, 112;
        xor.b32 %r16, %r16, %r17;
        ldmatrix";
    check(&from_registers(&matrix.replace("ldmatrix", swizzled)), &data, 3);
}

/// A from registers, by `ldmatrix.trans` from rows along M.
#[test]
fn a_from_registers_transposed() {
    let data = [rows(K, M, |k, m| a(m, k)), rows(K, N, b)].concat();
    let matrix = "mad.lo.u32 %r16, %r13, 8, %r12;
        shl.b32 %r16, %r16, 7;
        mad.lo.u32 %r17, %r14, 8, %r15;
        mad.lo.u32 %r16, %r17, 2, %r16;
        shl.b32 %r17, %r12, 4;
        xor.b32 %r16, %r16, %r17;
        add.u32 %r16, %r29, %r16;
        ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r20, %r21, %r22, %r23}, [%r16];";
    check(&from_registers(matrix), &data, 3);
}
