//! Copies, reductions and exchange between CTAs, by their results.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{launch, matrix_map, no_map, source, threads};
use cudasim::error::Kind;
use cudasim::harness::Shape;

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    words(values.into_iter().map(f32::to_bits))
}

/// Runs with several interleavings.
#[track_caller]
fn check(text: &str, shape: Shape, data: &[u8], out: &[u8], map: fn(u64, u64) -> [u8; 128], want: &[u8]) {
    let text = source(text, "sm_90a", false);
    for seed in 0..12 {
        let shape = Shape { seed, ..shape };
        let got = launch(&text, shape, data, (out, want.len()), map).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(got, want, "seed {seed}");
    }
}

fn ctas(count: u32, size: u32) -> Shape {
    Shape { grid: [count, 1, 1], ..threads(size) }
}

#[test]
fn vector_reductions_of_several_ctas() {
    let text = "shl.b32 %r1, %r31, 4;
        cvt.u64.u32 %d1, %r1;
        add.u64 %d2, %d31, %d1;
        add.u64 %d3, %d30, %d1;
        ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%d3];
        red.global.add.v4.f32 [%d2], {%f0, %f1, %f2, %f3};
        red.relaxed.gpu.global.add.v2.f32 [%d2+8], {%f0, %f1};
        red.global.add.f32 [%d2], %f3;
        atom.global.add.f32 %f4, [%d2+4], %f3;
        griddepcontrol.launch_dependents;";
    let data: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let want = (0..32).flat_map(|t| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| data[4 * t + i]);
        [1.0 + 3.0 * (a + d), 1.0 + 3.0 * (b + d), 1.0 + 3.0 * (c + a), 1.0 + 3.0 * (d + b)]
    });
    check(text, ctas(3, 32), &floats(data.clone()), &floats([1.0; 128]), no_map, &floats(want));
}

#[test]
fn sums_in_global_memory_lose_subnormals() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        mov.f32 %f0, 0f00000001;
        red.global.add.f32 [%d31], %f0;
        st.shared.f32 [%r29], %f0;
        red.shared.add.f32 [%r29], %f0;
        ld.shared.u32 %r1, [%r29];
        st.global.u32 [%d31+4], %r1;
        done:";
    check(text, threads(32), &[0; 16], &words([0, 9]), no_map, &words([0, 2]));
}

const FILL: &str = "shl.b32 %r1, %r31, 4;
    add.u32 %r2, %r29, %r1;
    mov.u32 %r3, %ctaid.x;
    add.u32 %r3, %r3, 1;
    cvt.rn.f32.u32 %f0, %r3;
    cvt.rn.f32.u32 %f1, %r31;
    st.shared.v4.f32 [%r2], {%f0, %f1, %f0, %f1};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r31, 0;
    @%p1 bra done;
    COPY
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    done:";

fn sums() -> Vec<u8> {
    floats((0..32).flat_map(|t| [10.0 + 0.5, 4.0 * t as f32 + 0.5, 10.0 + 0.5, 4.0 * t as f32 + 0.5]))
}

/// Four CTAs add to the same bytes: each element is atomic.
#[test]
fn bulk_reduction() {
    let copy = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d31], [%r29], 512;";
    check(&FILL.replace("COPY", copy), ctas(4, 32), &[0; 16], &floats([0.5; 128]), no_map, &sums());
}

#[test]
fn tensor_reduction() {
    let copy = "mov.b64 %d3, map;
        cvta.param.u64 %d3, %d3;
        mov.u32 %r9, 0;
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d3, {%r9, %r9}], [%r29];";
    let map = |_, out| matrix_map(out, 7, 4, [32, 4], [32, 4], 0);
    check(&FILL.replace("COPY", copy), ctas(4, 32), &[0; 16], &floats([0.5; 128]), map, &sums());
}

/// Each warp stores its own part of a tile as soon as the warp, not the CTA, is ready.
#[test]
fn tensor_stores_by_warp() {
    let text = "and.b32 %r3, %r31, 31;
        shl.b32 %r1, %r31, 4;
        add.u32 %r2, %r29, %r1;
        st.shared.v4.u32 [%r2], {%r31, %r30, %r31, %r30};
        fence.proxy.async.shared::cta;
        bar.warp.sync -1;
        elect.sync _|%p1, -1;
        @!%p1 bra done;
        mov.b64 %d3, map;
        cvta.param.u64 %d3, %d3;
        mov.u32 %r9, 0;
        shl.b32 %r10, %r30, 2;
        shl.b32 %r11, %r30, 9;
        add.u32 %r11, %r29, %r11;
        cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d3, {%r9, %r10}], [%r11];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:
        bar.warp.sync -1;";
    let map = |_, out| matrix_map(out, 2, 4, [32, 16], [32, 4], 0);
    check(text, threads(128), &[0; 16], &[], map, &words((0..128).flat_map(|t| [t, t / 32, t, t / 32])));
}

/// Producer and consumers meet at named barriers: one arrives, the others wait.
#[test]
fn named_barriers() {
    let text = "shl.b32 %r1, %r31, 2;
        setp.ne.u32 %p3, %r30, 0;
        @%p3 bra consumer;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r31;
        bar.arrive 3, 96;
        bar.sync 4, 96;
        ld.shared.u32 %r3, [%r2+128];
        cvt.u64.u32 %d1, %r1;
        add.u64 %d2, %d31, %d1;
        st.global.u32 [%d2], %r3;
        bra done;
        consumer:
        bar.sync 3, 96;
        and.b32 %r4, %r31, 31;
        shl.b32 %r4, %r4, 2;
        add.u32 %r4, %r29, %r4;
        ld.shared.u32 %r5, [%r4];
        mul.lo.u32 %r5, %r5, 3;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r5;
        bar.arrive 4, 96;
        done:";
    check(text, threads(96), &[0; 16], &[], no_map, &words((0..32).map(|t| 3 * t)));
}

/// A CTA reads and writes the shared memory of its peer, and stores there with a signal.
#[test]
fn distributed_shared_memory() {
    let text = "mov.u32 %r1, %cluster_ctarank;
        xor.b32 %r2, %r1, 1;
        shl.b32 %r3, %r31, 4;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 512;
        ready:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        add.u32 %r4, %r29, %r3;
        mapa.shared::cluster.u32 %r5, %r4, %r2;
        mapa.shared::cluster.u32 %r6, %r28, %r2;
        mad.lo.u32 %r7, %r1, 100, %r31;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], {%r7, %r1, %r7, %r1}, [%r6];
        again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        @!%p2 bra again;
        ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r4];
        st.shared::cluster.u32 [%r5+2048], %r10;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ld.shared::cluster.u32 %r12, [%r5+2048];
        ld.shared.u32 %r13, [%r4+2048];
        mad.lo.u32 %r3, %r1, 512, %r3;
        cvt.u64.u32 %d1, %r3;
        add.u64 %d2, %d31, %d1;
        st.global.v4.u32 [%d2], {%r10, %r11, %r12, %r13};
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;";
    let shape = Shape { cluster: [2, 1, 1], ..ctas(2, 32) };
    let want = (0..64).flat_map(|i| {
        let (rank, t) = (i / 32, i % 32);
        // From the peer; what it got from here and was given back; and the other way round.
        let (own, peer) = (100 * rank + t, 100 * (1 - rank) + t);
        [peer, 1 - rank, peer, own]
    });
    check(text, shape, &[0; 16], &[], no_map, &words(want));
}

#[test]
fn matrices_of_the_warp() {
    for (transpose, name) in [(false, ""), (true, ".trans")] {
        let text = format!(
            "shl.b32 %r1, %r31, 4;
            add.u32 %r2, %r29, %r1;
            mad.lo.u32 %r4, %r31, 0x20002, 0x10000;
            add.u32 %r5, %r4, 0x400040;
            add.u32 %r6, %r5, 0x400040;
            add.u32 %r7, %r6, 0x400040;
            stmatrix.sync.aligned.m8n8.x4{name}.shared.b16 [%r2], {{%r4, %r5, %r6, %r7}};
            bar.warp.sync -1;
            ld.shared.v4.u32 {{%r8, %r9, %r10, %r11}}, [%r2];
            cvt.u64.u32 %d1, %r1;
            add.u64 %d2, %d31, %d1;
            st.global.v4.u32 [%d2], {{%r8, %r9, %r10, %r11}};"
        );
        // Lane t gives the elements 2 t and 2 t + 1 of each matrix, numbered from 64 i.
        let want = (0..4u16).flat_map(|matrix| {
            (0..64u16).flat_map(move |at| {
                let (row, column) = (at / 8, at % 8);
                (64 * matrix + if transpose { 8 * column + row } else { at }).to_le_bytes()
            })
        });
        check(&text, threads(32), &[0; 16], &[], no_map, &want.collect::<Vec<_>>());
    }
}

#[test]
fn shuffles() {
    type From = fn(u32) -> u32;
    let modes: [(&str, u32, u32, From); 7] = [
        ("bfly", 5, 31, |t| t ^ 5),
        ("up", 3, 0, |t| if t < 3 { t } else { t - 3 }),
        ("down", 2, 31, |t| if t > 29 { t } else { t + 2 }),
        ("idx", 17, 31, |_| 17),
        // Segments of eight lanes.
        ("idx", 3, 0x181F, |t| t / 8 * 8 + 3),
        ("down", 6, 0x181F, |t| if t % 8 > 1 { t } else { t + 6 }),
        ("up", 6, 0x1800, |t| if t % 8 < 6 { t } else { t - 6 }),
    ];
    for (mode, b, c, from) in modes {
        let text = format!(
            "add.u32 %r1, %r31, 1000;
            shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1;
            selp.u32 %r3, 1, 0, %p1;
            shl.b32 %r4, %r31, 3;
            cvt.u64.u32 %d1, %r4;
            add.u64 %d2, %d31, %d1;
            st.global.v2.u32 [%d2], {{%r2, %r3}};"
        );
        let inside = |t: u32| match mode {
            "bfly" | "idx" => 1,
            _ => u32::from(from(t) != t),
        };
        let want = (0..32).flat_map(|t| [1000 + from(t), inside(t)]);
        check(&text, threads(32), &[0; 16], &[], no_map, &words(want));
    }
}

/// Two CTAs write a word each and count themselves; the last one reads both words.
fn last_one(count: &str) -> String {
    format!(
        "mov.u32 %r1, %ctaid.x;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        mul.wide.u32 %d1, %r1, 4;
        add.u64 %d1, %d31, %d1;
        st.global.u32 [%d1+8], 7;
        {count}
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra done;
        ld.global.v2.u32 {{%r3, %r4}}, [%d31+8];
        add.u32 %r3, %r3, %r4;
        st.global.u32 [%d31+4], %r3;
        done:"
    )
}

#[test]
fn atomics_order_ctas() {
    let count = "membar.gl;\natom.global.add.u32 %r2, [%d31], 1;";
    check(&last_one(count), ctas(2, 32), &[0; 16], &words([0, 0]), no_map, &words([2, 14, 7, 7]));
    // A flag instead of a counter: the second CTA waits for the first.
    let flag = "mov.u32 %r2, %r1;
        setp.ne.u32 %p3, %r1, 0;
        @%p3 bra wait;
        st.release.gpu.global.u32 [%d31], 1;
        bra done;
        wait: ld.acquire.gpu.global.u32 %r5, [%d31];
        setp.eq.u32 %p4, %r5, 0;
        @%p4 bra wait;";
    check(&last_one(flag), ctas(2, 32), &[0; 16], &words([0, 0]), no_map, &words([1, 14, 7, 7]));
}

/// An atomic whose result nobody reads tells a CTA nothing of what others did.
#[test]
fn only_results_order_ctas() {
    for count in
        ["red.global.add.u32 [%d31], 1;\nmov.u32 %r2, %r1;", "atom.global.add.u32 %r6, [%d31], 1;\nmov.u32 %r2, %r1;"]
    {
        let text = source(&last_one(count), "sm_90a", false);
        for seed in 0..12 {
            let shape = Shape { seed, ..ctas(2, 32) };
            let fault = launch(&text, shape, &[0; 16], (&words([0, 0]), 16), no_map).unwrap_err();
            assert!(matches!(fault.kind, Kind::Race | Kind::Uninitialised), "seed {seed}: {fault}");
        }
    }
}
