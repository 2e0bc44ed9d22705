//! Speed on elementwise code, in thread-instructions a second on one core: `cargo xtask sim speed`.

use std::error::Error;
use std::time::Instant;

use cudasim::harness::{Shape, Simulator};

/// What the simulator is meant to reach.
const TARGET: f64 = 20e6;
const THREADS: u32 = 256;
const CTAS: u32 = 32;
/// Elements of a thread.
const STEPS: u32 = 32;

/// x -> x / (1 + exp(-x)) * 0.5 + 0.25, rounded to bf16 and back; every thread takes `STEPS` elements.
fn elementwise() -> String {
    format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n
        .visible .entry elementwise(.param .u64 x, .param .u64 y)\n.maxntid {THREADS}, 1, 1\n{{
        .reg .pred %p<2>;\n.reg .b16 %h<2>;\n.reg .b32 %r<8>;\n.reg .f32 %f<8>;\n.reg .b64 %d<8>;
        ld.param.u64 %d1, [x];
        ld.param.u64 %d2, [y];
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, %ctaid.x;
        mad.lo.u32 %r1, %r2, {THREADS}, %r1;
        mov.u32 %r3, 0;
        next:
        mul.wide.u32 %d3, %r1, 4;
        add.u64 %d4, %d1, %d3;
        ld.global.f32 %f1, [%d4];
        mul.f32 %f2, %f1, 0fBFB8AA3B;
        ex2.approx.ftz.f32 %f3, %f2;
        add.f32 %f4, %f3, 0f3F800000;
        rcp.approx.ftz.f32 %f5, %f4;
        mul.f32 %f6, %f1, %f5;
        fma.rn.f32 %f7, %f6, 0f3F000000, 0f3E800000;
        cvt.rn.bf16.f32 %h1, %f7;
        mov.b32 %r4, {{0, %h1}};
        add.u64 %d5, %d2, %d3;
        st.global.b32 [%d5], %r4;
        add.u32 %r1, %r1, {};
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, {STEPS};
        @%p1 bra next;
        ret;\n}}\n",
        THREADS * CTAS
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut simulator = Simulator::new(&elementwise())?;
    let count = (THREADS * CTAS * STEPS) as usize;
    let (x, y) = (simulator.allocate(4 * count), simulator.allocate(4 * count));
    let values: Vec<u8> = (0..count).flat_map(|i| (i as f32 / count as f32 - 0.5).to_le_bytes()).collect();
    simulator.write(x, &values)?;
    let shape = Shape { grid: [CTAS, 1, 1], block: [THREADS, 1, 1], ..Shape::default() };
    let mut best = 0f64;
    for _ in 0..5 {
        let (before, start) = (simulator.instructions(), Instant::now());
        simulator.launch("elementwise", shape, &[&x.to_le_bytes(), &y.to_le_bytes()])?;
        let executed = 32.0 * (simulator.instructions() - before) as f64;
        best = best.max(executed / start.elapsed().as_secs_f64());
    }
    println!("elementwise code: {:.1} M thread-instructions/s, {:.0} M wanted", best * 1e-6, TARGET * 1e-6);
    if best < TARGET {
        return Err("too slow".into());
    }
    Ok(())
}
