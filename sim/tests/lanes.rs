//! Lanes of one warp are threads: what orders them, and what does not.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{case, check, threads};
use cudasim::error::Kind;

#[test]
fn exchange_through_shared_memory() {
    let text = "shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r31;
        ~bar.warp.sync -1;
        xor.b32 %r3, %r1, 4;
        add.u32 %r3, %r29, %r3;
        ld.shared.u32 %r4, [%r3];";
    let report = check(&case(threads(32), text), &[Kind::Race]);
    assert!(report.contains("bar.warp.sync") && report.contains("warp 0 lane"), "{report}");
}

/// The second store may overtake a load of another lane.
#[test]
fn overwriting_what_another_lane_reads() {
    let text = "shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r31;
        bar.warp.sync -1;
        xor.b32 %r3, %r1, 4;
        add.u32 %r3, %r29, %r3;
        ld.shared.u32 %r4, [%r3];
        ~bar.warp.sync -1;
        st.shared.u32 [%r2], %r4;";
    check(&case(threads(32), text), &[Kind::Race]);
}

/// A lane that arrives for its warp must have met the others.
#[test]
fn release_by_one_lane() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        ready:
        bar.sync 0;
        setp.ne.u32 %p3, %r30, 0;
        @%p3 bra wait;
        shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        st.shared.u32 [%r2], %r31;
        ~bar.warp.sync -1;
        @%p1 bra done;
        mbarrier.arrive.shared::cta.b64 _, [%r28];
        bra done;
        wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        @!%p2 bra wait;
        and.b32 %r4, %r31, 31;
        shl.b32 %r1, %r4, 2;
        add.u32 %r2, %r29, %r1;
        ld.shared.u32 %r4, [%r2];
        done:
        bar.sync 0;";
    check(&case(threads(64), text), &[Kind::Race, Kind::Uninitialised]);
}

/// The fence of each lane publishes its own bytes; the lane that copies them must also have met the others.
#[test]
fn bulk_store_of_what_the_warp_wrote() {
    let text = "shl.b32 %r1, %r31, 4;
        add.u32 %r2, %r29, %r1;
        st.shared.v4.u32 [%r2], {%r31, %r31, %r31, %r31};
        fence.proxy.async.shared::cta;
        ~bar.warp.sync -1;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 512;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:
        bar.warp.sync -1;";
    check(&case(threads(32), text), &[Kind::Race]);
}

/// One lane may fence for the warp once it has met it.
#[test]
fn fence_of_one_lane() {
    let text = "shl.b32 %r1, %r31, 4;
        add.u32 %r2, %r29, %r1;
        st.shared.v4.u32 [%r2], {%r31, %r31, %r31, %r31};
        setp.ne.u32 %p1, %r31, 0;
        ~bar.warp.sync -1;
        @%p1 bra fenced;
        fence.proxy.async.shared::cta;
        fenced:
        bar.warp.sync -1;
        @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 512;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:
        bar.warp.sync -1;";
    check(&case(threads(32), text), &[Kind::MissingProxyFence]);
}

/// Lanes may store the same value at one place; different values have no order.
#[test]
fn one_place_for_all_lanes() {
    let text = "mov.u32 %r1, 7;\n+mov.u32 %r1, %r31;\nst.shared.u32 [%r29], %r1;\nbar.warp.sync -1;\nld.shared.u32 %r2, [%r29];";
    check(&case(threads(32), text), &[Kind::Race]);
}

/// Matrices of the warp are written by all lanes: the lane that copies them has to meet them.
#[test]
fn bulk_store_after_stmatrix() {
    let text = "and.b32 %r4, %r31, 7;
        shl.b32 %r1, %r4, 4;
        add.u32 %r2, %r29, %r1;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r31};
        fence.proxy.async.shared::cta;
        ~bar.warp.sync -1;
        setp.ne.u32 %p1, %r31, 0;
        @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 128;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        done:
        bar.warp.sync -1;";
    check(&case(threads(32), text), &[Kind::Race]);
}

#[test]
fn exchange_through_global_memory() {
    let text = "shl.b32 %r1, %r31, 2;
        cvt.u64.u32 %d1, %r1;
        add.u64 %d2, %d31, %d1;
        st.global.u32 [%d2], %r31;
        ~bar.warp.sync -1;
        xor.b32 %r3, %r1, 4;
        cvt.u64.u32 %d1, %r3;
        add.u64 %d2, %d31, %d1;
        ld.global.u32 %r4, [%d2];";
    check(&case(threads(32), text), &[Kind::Race]);
}

/// What one lane has waited for, the others learn when they meet it.
#[test]
fn wait_of_one_lane() {
    let text = "setp.ne.u32 %p1, %r31, 0;
        @%p1 bra ready;
        mbarrier.init.shared::cta.b64 [%r28], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r29], [%d30], 128, [%r28];
        wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        @!%p2 bra wait;
        ready:
        ~bar.warp.sync -1;
        shl.b32 %r1, %r31, 2;
        add.u32 %r2, %r29, %r1;
        ld.shared.u32 %r4, [%r2];
        +bar.warp.sync -1;
        +setp.eq.u32 %p3, %r31, 0;
        +last: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;
        +@!%p2 bra last;";
    check(&case(threads(32), text), &[Kind::Race, Kind::Uninitialised]);
}

/// The buffer of a bulk copy is free for the lane that has waited; the others must meet it.
#[test]
fn buffer_is_free_for_the_lane_that_waited() {
    let text = "shl.b32 %r1, %r31, 4;
        add.u32 %r2, %r29, %r1;
        setp.ne.u32 %p1, %r31, 0;
        st.shared.v4.u32 [%r2], {%r31, %r31, %r31, %r31};
        fence.proxy.async.shared::cta;
        bar.warp.sync -1;
        @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group [%d31], [%r29], 512;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        done:
        ~bar.warp.sync -1;
        st.shared.v4.u32 [%r2], {%r30, %r30, %r30, %r30};";
    check(&case(threads(32), text), &[Kind::Race]);
}
