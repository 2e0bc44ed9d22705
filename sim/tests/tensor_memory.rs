//! tcgen05 and Tensor Memory: one product of ones, and the faults around it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{Case, case, check, run, threads};
use cudasim::error::Kind;
use cudasim::harness::Shape;

/// D[128 x 16] = A[128 x 16] B[16 x 16] with all elements of A and B 1, then D's first 8 columns to `out`.
const PRODUCT: &str = "mov.u32 %r1, 0x3f803f80;
    shl.b32 %r2, %r31, 5;
    add.u32 %r2, %r29, %r2;
    st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};
    st.shared.v4.u32 [%r2+16], {%r1, %r1, %r1, %r1};
    PROXY
    setp.ne.u32 %p1, %r31, 0;
    @%p1 bra ready;
    mbarrier.init.shared::cta.b64 [%r28], 1;
    ready:
    setp.ne.u32 %p3, %r30, 0;
    @%p3 bra allocated;
    add.u32 %r3, %r28, 32;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    allocated:
    bar.sync 0;
    ld.shared.u32 %r4, [bar+32];
    @%p1 bra issued;
    shr.u32 %r5, %r29, 4;
    and.b32 %r5, %r5, 16383;
    cvt.u64.u32 %d1, %r5;
    or.b64 %d1, %d1, 0x401000080000;
    mov.u32 %r6, DESCRIPTOR;
    tcgen05.mma.cta_group::1.kind::f16 [%r4], %d1, %d1, %r6, 0;
    tcgen05.mma.cta_group::1.kind::f16 [%r4], %d1, %d1, %r6, 1;
    COMMIT
    issued:
    WAIT
    shl.b32 %r7, %r30, 21;
    add.u32 %r7, %r4, %r7;
    LOAD
    shl.b32 %r8, %r31, 5;
    cvt.u64.u32 %d2, %r8;
    add.u64 %d2, %d31, %d2;
    st.global.v4.u32 [%d2], {%r10, %r11, %r12, %r13};
    st.global.v4.u32 [%d2+16], {%r14, %r15, %r16, %r17};
    bar.sync 0;
    @%p3 bra done;
    DEALLOC
    done:
    bar.sync 0;
    LAST";

const PARTS: [(&str, &str); 6] = [
    ("PROXY", "fence.proxy.async.shared::cta;"),
    ("DESCRIPTOR", "0x08040490"),
    ("COMMIT", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r28];"),
    (
        "WAIT",
        "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n@!%p2 bra again;\ntcgen05.fence::after_thread_sync;",
    ),
    (
        "LOAD",
        "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%r7];\n\
         tcgen05.wait::ld.sync.aligned;",
    ),
    ("DEALLOC", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;"),
];

/// The kernel with some parts replaced.
fn product(changes: &[(&str, &str)]) -> Case {
    let mut text = PRODUCT.to_string();
    for (name, part) in changes.iter().chain(&PARTS) {
        text = text.replace(name, part);
    }
    Case { target: "sm_100a", ..case(threads(128), text.replace("LAST", "").leak()) }
}

#[test]
fn numbers() {
    for seed in 0..16 {
        let bytes = run(&product(&[]), false, seed).unwrap();
        for value in bytes.chunks_exact(4) {
            assert_eq!(f32::from_le_bytes(value.try_into().unwrap()), 32.0);
        }
    }
}

#[test]
fn accumulator_read_before_the_commit_was_waited_for() {
    let wait = "~again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n~@!%p2 bra again;";
    let last = "bar.sync 0;\n+again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n+@!%p2 bra again;";
    check(&product(&[("WAIT", wait), ("LAST", last)]), &[Kind::Race, Kind::Uninitialised]);
}

#[test]
fn missing_commit() {
    let commit = "~tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r28];";
    let report = check(&product(&[("COMMIT", commit)]), &[Kind::Deadlock]);
    assert!(report.contains("1 of 1 arrivals missing"), "{report}");
}

#[test]
fn operands_without_a_proxy_fence() {
    check(&product(&[("PROXY", "~fence.proxy.async.shared::cta;")]), &[Kind::MissingProxyFence]);
}

#[test]
fn registers_used_before_the_wait_for_the_load() {
    let load = PARTS[4].1.replace("tcgen05.wait", "~tcgen05.wait");
    check(&product(&[("LOAD", &load)]), &[Kind::NotWaited]);
}

#[test]
fn lanes_of_another_warp() {
    let load = format!("+xor.b32 %r7, %r7, 0x200000;\n{}", PARTS[4].1);
    check(&product(&[("LOAD", &load)]), &[Kind::Tmem]);
}

#[test]
fn columns_that_are_not_allocated() {
    let load = format!("+add.u32 %r7, %r7, 28;\n{}", PARTS[4].1);
    check(&product(&[("LOAD", &load)]), &[Kind::Tmem]);
}

#[test]
fn missing_dealloc() {
    check(&product(&[("DEALLOC", "~tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;")]), &[Kind::Tmem]);
}

#[test]
fn instruction_descriptor_of_another_shape() {
    check(&product(&[("DESCRIPTOR", "0x08040490;\n+or.b32 %r6, %r6, 8")]), &[Kind::Descriptor]);
    // 16 columns more than were allocated.
    check(&product(&[("DESCRIPTOR", "0x08040490;\n+mov.u32 %r6, 0x080c0490")]), &[Kind::Tmem, Kind::Uninitialised]);
}

#[test]
fn accumulator_overwritten_while_a_product_may_run() {
    // The store needs the same wait as the load.
    let wait = "mov.u32 %r20, 0;\nshl.b32 %r7, %r30, 21;\nadd.u32 %r7, %r4, %r7;\n\
                +tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r20};\n+tcgen05.wait::st.sync.aligned;\n\
                again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], 0;\n@!%p2 bra again;";
    check(&product(&[("WAIT", wait)]), &[Kind::Race]);
}

/// D[256 x 16] of a pair: each CTA holds half of A and of B, the even one issues, both are told.
const PAIR: &str = "mov.u32 %r1, 0x3f803f80;
    mov.u32 %r26, %cluster_ctarank;
    shl.b32 %r2, %r31, 5;
    add.u32 %r2, %r29, %r2;
    st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};
    st.shared.v4.u32 [%r2+16], {%r1, %r1, %r1, %r1};
    fence.proxy.async.shared::cta;
    setp.ne.u32 %p1, %r31, 0;
    @%p1 bra ready;
    mbarrier.init.shared::cta.b64 [%r28], 1;
    fence.mbarrier_init.release.cluster;
    ready:
    setp.ne.u32 %p3, %r30, 0;
    @%p3 bra allocated;
    add.u32 %r3, %r28, 32;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3], 32;
    tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
    allocated:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared.u32 %r4, [bar+32];
    setp.ne.u32 %p4, %r26, 0;
    or.pred %p5, %p1, %p4;
    @%p5 bra issued;
    shr.u32 %r5, %r29, 4;
    and.b32 %r5, %r5, 16383;
    cvt.u64.u32 %d1, %r5;
    or.b64 %d1, %d1, 0x401000080000;
    mov.u32 %r6, 0x10040490;
    tcgen05.mma.cta_group::2.kind::f16 [%r4], %d1, %d1, %r6, 0;
    mov.b16 %h, 3;
    ~tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r28], %h;
    +tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r28];
    issued:
    again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r28], 0;
    @!%p2 bra again;
    shl.b32 %r7, %r30, 21;
    add.u32 %r7, %r4, %r7;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r10, %r11, %r12, %r13}, [%r7];
    tcgen05.wait::ld.sync.aligned;
    mad.lo.u32 %r8, %r26, 128, %r31;
    mul.wide.u32 %d2, %r8, 16;
    add.u64 %d2, %d31, %d2;
    st.global.v4.u32 [%d2], {%r10, %r11, %r12, %r13};
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p3 bra done;
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 32;
    done:";

fn pair() -> Case {
    let shape = Shape { grid: [2, 1, 1], cluster: [2, 1, 1], ..threads(128) };
    Case { target: "sm_100a", ..case(shape, format!(".reg .b16 %h;\n{PAIR}").leak()) }
}

#[test]
fn product_of_a_pair() {
    for seed in 0..16 {
        let bytes = run(&pair(), false, seed).unwrap();
        for value in bytes.chunks_exact(4) {
            assert_eq!(f32::from_le_bytes(value.try_into().unwrap()), 16.0);
        }
    }
}

#[test]
fn commit_that_tells_one_cta_of_the_pair() {
    check(&pair(), &[Kind::Deadlock]);
}
