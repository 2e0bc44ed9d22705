//! clusterlaunchcontrol: every CTA's work is done once, by whoever gets it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{Case, case, check, run, threads};
use cudasim::error::Kind;
use cudasim::harness::Shape;

const WORK: &str = "setp.ne.u32 %p1, %r31, 0;
    @%p1 bra ready;
    mbarrier.init.shared::cta.b64 [%r28], 1;
    ready:
    bar.sync 0;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r6, 0;
    next:
    shl.b32 %r2, %r1, 2;
    cvt.u64.u32 %d1, %r2;
    add.u64 %d1, %d31, %d1;
    @!%p1 st.global.u32 [%d1], %r1;
    @%p1 bra issued;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r28], BYTES;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r29], [%r28];
    issued:
    WAIT
    xor.b32 %r6, %r6, 1;
    ld.shared.b128 %q, [%r29];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;
    ~@!%p4 bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %q;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    bra next;
    done:
    bar.sync 0;";

const WAIT: &str = "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r28], %r6;\n@!%p2 bra again;";

fn work(bytes: &str, wait: &str) -> Case {
    let text = format!(".reg .b128 %q;\n{}", WORK.replace("BYTES", bytes).replace("WAIT", wait));
    let shape = Shape { grid: [20, 1, 1], multiprocessors: 3, ..threads(32) };
    Case { target: "sm_100a", ..case(shape, text.leak()) }
}

#[test]
fn every_index_is_handed_out_once() {
    for seed in 0..32 {
        let bytes = run(&work("16", WAIT), false, seed).unwrap();
        for (index, word) in bytes.chunks_exact(4).take(20).enumerate() {
            assert_eq!(u32::from_le_bytes(word.try_into().unwrap()), index as u32);
        }
    }
}

#[test]
fn index_of_a_request_that_failed() {
    check(&work("16", WAIT), &[Kind::ClusterLaunch]);
}
