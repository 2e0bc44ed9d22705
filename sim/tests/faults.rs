//! Every class of fault: a kernel that commits it is reported, its corrected twin is not.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{Case, case, check, source, threads};
use cudasim::error::Kind;
use cudasim::harness::{Shape, Simulator};

const INIT: &str = "";

#[test]
fn race_on_shared_memory() {
    let text = "shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r31;
        ~bar.sync 0;
        xor.b32 %r3, %r1, 128;
        add.u32 %r3, %r29, %r3;
        ld.shared.u32 %r4, [%r3];";
    check(&case(threads(64), text), &[Kind::Race, Kind::Uninitialised]);
}

#[test]
fn race_on_global_memory() {
    let text = "mov.u32 %r1, %ctaid.x;
        +mov.u32 %r1, 0;
        mad.lo.u32 %r1, %r1, 32, %r31;
        mul.wide.u32 %d1, %r1, 4;
        add.u64 %d1, %d31, %d1;
        st.global.u32 [%d1], %r31;";
    let shape = Shape { grid: [2, 1, 1], ..threads(32) };
    let report = check(&case(shape, text), &[Kind::Race]);
    assert!(report.contains("PTX line"), "{report}");
}

#[test]
fn missing_proxy_fence() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        st.shared.v4.u32 [%r29], {%r31, %r31, %r31, %r31};
        ~fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:";
    check(&case(threads(32), text), &[Kind::MissingProxyFence]);
}

/// One thread loads 256 bytes and all read them.
const LOAD: &str = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        ~mov.u32 %r5, 256;
        +mov.u32 %r5, BYTES;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], %r5;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r29], [%d30], 256, [%r28];
        ready:
        bar.sync 0;
        ~mov.u32 %r6, 0;
        +mov.u32 %r6, PARITY;
        WAIT
        shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        ld.shared.u32 %r4, [%r2];
        bar.sync 0;
        LAST";

const WAIT: &str = "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], %r6;
        @!%p2 bra again;";

fn load(bytes: &str, parity: &str, wait: &str, last: &str) -> Case {
    let text = LOAD.replace("BYTES", bytes).replace("PARITY", parity).replace("WAIT", wait).replace("LAST", last);
    case(threads(64), text.leak())
}

#[test]
fn missing_wait_for_a_copy() {
    let wait = WAIT.lines().map(|l| format!("~{}\n", l.trim_start())).collect::<String>();
    // The corrected kernel's wait at the end lets the faulty one end in order too.
    let last = "+again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n+@!%p2 bra again;";
    check(&load("256", "0", &wait, last), &[Kind::Uninitialised, Kind::Race]);
}

#[test]
fn wrong_transaction_bytes() {
    for bytes in ["128", "512"] {
        let report = check(&load(bytes, "0", WAIT, INIT), &[Kind::Deadlock]);
        assert!(report.contains("mbarrier") && report.contains("bytes missing"), "{report}");
    }
}

#[test]
fn phase_off_by_one() {
    let last = "+last: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n+@!%p2 bra last;";
    check(&load("256", "1", WAIT, last), &[Kind::Uninitialised, Kind::Race, Kind::Deadlock]);
}

#[test]
fn stage_released_too_early() {
    // Warp 0 loads the same stage twice; warp 1 reads it twice and gives it back each time.
    let text = "add.u32 %r27, %r28, 8;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        mbarrier.init.shared::cta.b64 [%r27], 32;
        fence.mbarrier_init.release.cluster;
        ready:
        bar.sync 0;
        mov.u32 %r6, 0;
        setp.ne.u32 %p3, %r30, 0;
        @%p3 bra consumer;
        @%p1 bra done;
        produce:
        xor.b32 %r7, %r6, 1;
        empty: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r27], %r7;
        @!%p2 bra empty;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r29], [%d30], 128, [%r28];
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p4, %r6, 2;
        @%p4 bra produce;
        bra done;
        consumer:
        and.b32 %r10, %r31, 31;
        shl.b32 %r1, %r10, 2;
        add.u32 %r2, %r29, %r1;
        consume:
        full: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], %r6;
        @!%p2 bra full;
        +mbarrier.arrive.shared::cta.b64 _, [%r27];
        ld.shared.u32 %r4, [%r2];
        ~mbarrier.arrive.shared::cta.b64 _, [%r27];
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p4, %r6, 2;
        @%p4 bra consume;
        done:
        bar.sync 0;";
    check(&case(threads(64), text), &[Kind::Race]);
}

/// Zeros for both operands, one wgmma, its result added up.
const PRODUCT: &str = "shl.b32 %r1, %r31, 4;
        add.u32 %r2, %r29, %r1;
        mov.u32 %r3, 0;
        st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
        st.shared.v4.u32 [%r2+2048], {%r3, %r3, %r3, %r3};
        PROXY
        bar.sync 0;
        shr.u32 %r4, %r29, 4;
        and.b32 %r4, %r4, 16383;
        cvt.u64.u32 %d1, %r4;
        or.b64 %d2, %d1, DESCRIPTOR;
        mov.f32 %f0, 0f00000000;
        mov.f32 %f1, 0f00000000;
        mov.f32 %f2, 0f00000000;
        mov.f32 %f3, 0f00000000;
        FENCE
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d2, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        EARLY
        wgmma.wait_group.sync.aligned 0;
        add.f32 %f4, %f0, %f1;";

fn product(proxy: &str, descriptor: &str, fence: &str, early: &str) -> Case {
    let text = PRODUCT.replace("PROXY", proxy).replace("DESCRIPTOR", descriptor).replace("FENCE", fence);
    case(threads(128), text.replace("EARLY", early).leak())
}

const PROXY: &str = "fence.proxy.async.shared::cta;";
const FENCE: &str = "wgmma.fence.sync.aligned;";
/// No swizzle, LBO 128, SBO 256.
const PLAIN: &str = "0x1000080000";

#[test]
fn accumulator_touched_before_the_wait() {
    check(&product(PROXY, PLAIN, FENCE, "+add.f32 %f5, %f0, %f2;"), &[Kind::NotWaited]);
    check(&product(PROXY, PLAIN, FENCE, "+mov.f32 %f3, 0f3F800000;"), &[Kind::NotWaited]);
}

#[test]
fn operands_written_without_a_proxy_fence() {
    check(&product("~fence.proxy.async.shared::cta;", PLAIN, FENCE, INIT), &[Kind::MissingProxyFence]);
}

#[test]
fn missing_wgmma_fence() {
    check(&product(PROXY, PLAIN, "~wgmma.fence.sync.aligned;", INIT), &[Kind::NotWaited]);
}

/// A second product that overwrites its accumulator must not overtake what reads the first one's.
#[test]
fn missing_wgmma_fence_after_a_read() {
    let early = "wgmma.wait_group.sync.aligned 0;
        add.f32 %f5, %f0, %f2;
        ~wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d2, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;";
    check(&product(PROXY, PLAIN, FENCE, early), &[Kind::NotWaited]);
}

#[test]
fn operand_overwritten_before_the_wait() {
    let early = "+st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};";
    check(&product(PROXY, PLAIN, FENCE, early), &[Kind::Race]);
}

#[test]
fn descriptor_with_a_bit_outside_its_fields() {
    let two = "0x1000080000;\n+or.b64 %d2, %d2, 0x400000000000";
    check(&product(PROXY, two, FENCE, INIT), &[Kind::Descriptor]);
}

#[test]
fn swizzle_of_the_descriptor_is_not_that_of_the_copy() {
    // Eight copies of the 8 x 64 box fill A; B is the first of them.
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 8192;
        mov.b64 %d3, map;
        cvta.param.u64 %d3, %d3;
        mov.u32 %r8, 0;
        mov.u32 %r9, 0;
        next:
        shl.b32 %r10, %r8, 10;
        add.u32 %r10, %r29, %r10;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [%d3, {%r9, %r9}], [%r28];
        add.u32 %r8, %r8, 1;
        setp.lt.u32 %p4, %r8, 8;
        @%p4 bra next;
        ready:
        bar.sync 0;
        again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        @!%p2 bra again;
        shr.u32 %r4, %r29, 4;
        and.b32 %r4, %r4, 16383;
        cvt.u64.u32 %d1, %r4;
        ~or.b64 %d2, %d1, 0x4000004000010000;
        +or.b64 %d2, %d1, 0x8000004000010000;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d2, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        add.f32 %f4, %f0, %f1;";
    let report = check(&case(threads(128), text), &[Kind::Descriptor]);
    assert!(report.contains("B64"), "{report}");
}

#[test]
fn store_to_negative_coordinates() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        mov.u32 %r3, 0;
        mov.u32 %r4, 0;
        fill:
        add.u32 %r5, %r29, %r3;
        st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4};
        add.u32 %r3, %r3, 16;
        setp.lt.u32 %p2, %r3, 1024;
        @%p2 bra fill;
        fence.proxy.async.shared::cta;
        mov.b64 %d3, map;
        cvta.param.u64 %d3, %d3;
        mov.u32 %r6, 12;
        +mov.u32 %r6, -4;
        cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d3, {%r4, %r6}], [%r29];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:";
    check(&case(threads(32), text), &[Kind::OutOfBounds]);
}

#[test]
fn source_of_a_store_reused_before_it_is_read() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        st.shared.v4.u32 [%r29], {%r31, %r31, %r31, %r31};
        fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 16;
        cp.async.bulk.commit_group;
        ~cp.async.bulk.wait_group.read 0;
        st.shared.v4.u32 [%r29], {%r31, %r31, %r31, %r31};
        cp.async.bulk.wait_group 0;
        done:";
    check(&case(threads(32), text), &[Kind::Race]);
}

#[test]
fn exit_before_a_peer_has_signalled() {
    let text = "mov.u32 %r1, %cluster_ctarank;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        ready:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        @%p1 bra done;
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra done;
        mapa.shared::cluster.u32 %r2, %r28, 0;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
        done:
        ~barrier.cluster.arrive.aligned;
        ~barrier.cluster.wait.aligned;";
    let shape = Shape { grid: [2, 1, 1], cluster: [2, 1, 1], ..threads(32) };
    check(&case(shape, text), &[Kind::Exit]);
}

#[test]
fn exit_with_a_copy_under_way() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r29], [%d30], 256, [%r28];
        ~again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        ~@!%p2 bra again;
        done:";
    check(&case(threads(32), text), &[Kind::Exit]);
}

#[test]
fn registers_that_nobody_gives_up() {
    let text = "setp.lt.u32 %p1, %r31, 128;
        @%p1 bra first;
        setmaxnreg.inc.sync.aligned.u32 232;
        bra done;
        first:
        ~setmaxnreg.dec.sync.aligned.u32 24;
        +setmaxnreg.dec.sync.aligned.u32 72;
        done:";
    let report = check(&case(threads(256), text), &[Kind::Deadlock]);
    assert!(report.contains("registers per thread more"), "{report}");
}

#[test]
fn setmaxnreg_the_wrong_way() {
    let text = "~setmaxnreg.dec.sync.aligned.u32 64;\n+setmaxnreg.inc.sync.aligned.u32 64;";
    check(&case(threads(128), text), &[Kind::Registers]);
}

#[test]
fn deadlock_with_its_table() {
    let text = "setp.eq.u32 %p1, %r30, 1;
        +@%p1 bra done;
        bar.sync 3, 64;
        done:";
    let report = check(&case(threads(64), text), &[Kind::Deadlock]);
    assert!(report.contains("barrier 3: 32 of 64 threads arrived"), "{report}");
}

#[test]
fn barrier_with_two_counts() {
    let text = "mov.u32 %r1, 64;
        setp.eq.u32 %p1, %r30, 1;
        +@%p1 mov.u32 %r1, 32;
        bar.sync 2, %r1;";
    check(&case(threads(64), text), &[Kind::Barrier, Kind::Deadlock]);
}

#[test]
fn divergent_barrier() {
    let text = "setp.lt.u32 %p1, %r31, 16;
        +@%p1 bra other;
        bar.sync 0;
        +bra done;
        +other:
        +bar.sync 1;
        done:";
    check(&case(threads(32), text), &[Kind::Divergence]);
}

#[test]
fn lane_outside_its_mask() {
    let text = "mov.u32 %r1, -1;
        +mov.u32 %r1, 65535;
        shfl.sync.bfly.b32 %r2, %r31, 1, 31, %r1;";
    check(&case(threads(32), text), &[Kind::InvalidOperand]);
}

#[test]
fn too_many_arrivals() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        mbarrier.init.shared::cta.b64 [%r28], 2;
        mbarrier.arrive.shared::cta.b64 _, [%r28];
        ~mbarrier.arrive.shared::cta.b64 _, [%r28];
        +mbarrier.arrive.shared::cta.b64 _, [%r28], 2;
        done:";
    check(&case(threads(32), text), &[Kind::Mbarrier]);
}

#[test]
fn mbarrier_used_without_initialisation() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        ~mbarrier.init.shared::cta.b64 [%r28], 1;
        mbarrier.arrive.shared::cta.b64 _, [%r28];
        done:";
    check(&case(threads(32), text), &[Kind::Mbarrier]);
}

#[test]
fn mbarrier_initialised_by_another_warp_without_a_barrier() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 64;
        ready:
        ~bar.sync 0;
        mbarrier.arrive.shared::cta.b64 _, [%r28];";
    check(&case(threads(64), text), &[Kind::Race, Kind::Mbarrier]);
}

#[test]
fn reads_of_what_nothing_wrote() {
    check(&case(threads(32), "+ld.shared.u32 %r1, [%r29];\nmov.u32 %r2, 0;"), &[Kind::Uninitialised]);
    check(&case(threads(32), "+ld.global.u32 %r1, [%d31];\nmov.u32 %r2, 0;"), &[Kind::Uninitialised]);
    check(
        &case(threads(32), "~mov.u32 %r1, 0;\nadd.u32 %r2, %r1, 1;\nst.shared.u32 [%r29], %r2;"),
        &[Kind::Uninitialised],
    );
}

#[test]
fn bad_addresses() {
    check(&case(threads(32), "ld.global.u32 %r1, [%d30];\n+ld.global.u32 %r1, [%d30+4096];"), &[Kind::OutOfBounds]);
    check(&case(threads(32), "ld.global.u32 %r1, [%d30];\n+ld.global.u32 %r1, [%d30+2];"), &[Kind::Misaligned]);
    check(&case(threads(32), "+ld.shared.u32 %r1, [%r29+65536];\nmov.u32 %r2, 0;"), &[Kind::OutOfBounds]);
    let rank = "mov.u32 %r1, 0;\n+mov.u32 %r1, 1;\nmapa.shared::cluster.u32 %r2, %r29, %r1;";
    check(&case(threads(32), rank), &[Kind::OutOfBounds]);
}

#[test]
fn malformed_text_is_an_error_with_its_line() {
    let kernel = |body: &str| Simulator::new(&source(body, "sm_90a", false)).err().map(|e| e.to_string());
    for body in [
        "mov.u32 %r1",
        "add.u32 %r1, %nothing, 1;",
        "frobnicate.u32 %r1, %r2;",
        "add.q32 %r1, %r2, %r3;",
        "bra nowhere;",
        "ld.shared.u32 [%r1], %r2;",
        "mma.sync.aligned %r1, %r2;",
    ] {
        let text = kernel(body).unwrap_or_else(|| panic!("{body} was accepted"));
        assert!(text.contains("line"), "{text}");
    }
    assert!(Simulator::new("").is_ok() && Simulator::new(".entry").is_err() && Simulator::new("{").is_err());
}
