//! Instructions on registers, against what Rust computes for the same words.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

mod common;

use common::{source, threads};
use cudasim::harness::{Shape, Simulator};
use half::{bf16, f16};

/// Words that show edges, and words without a pattern.
fn words() -> Vec<[u32; 3]> {
    let edges = [0, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, 0x3F80_0000, 0x7F80_0000, 0x7FC0_0001, 0x3C00_BC00, 31, 8];
    let mut state = 0x1234_5678u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_right(8)
    };
    let mixed = (0..32).map(|i| [edges[i % 11], edges[i * 7 % 11], edges[i * 3 % 11]]);
    // Halves of moderate size, so that sums and products are numbers.
    let mut moderate = |_| [0; 3].map(|_: u32| random() & 0x83FF_83FF | 0x3800_3C00);
    let moderate: Vec<[u32; 3]> = (0..32).map(&mut moderate).collect();
    mixed.chain(moderate).chain((0..64).map(|_| [random(), random(), random()])).collect()
}

/// Runs `body` (a, b, c in %r1 to %r3, the result in %r4) on every triple of words.
#[track_caller]
fn check(body: &str, expected: impl Fn([u32; 3]) -> u32) {
    let cases = words();
    let text = format!(
        "shl.b32 %r5, %r31, 4;\ncvt.u64.u32 %d1, %r5;\nadd.u64 %d2, %d30, %d1;\nadd.u64 %d3, %d31, %d1;\n\
         ld.global.nc.v4.u32 {{%r1, %r2, %r3, %r6}}, [%d2];\n{body}\nst.global.v4.f32 [%d3], {{%r4, %r4, %r1, %r1}};"
    );
    let mut simulator = Simulator::new(&source(&text, "sm_90a", false)).unwrap_or_else(|e| panic!("{body}: {e}"));
    let (data, out) = (simulator.allocate(4096), simulator.allocate(4096));
    let input: Vec<u8> = cases.iter().flat_map(|[a, b, c]| [*a, *b, *c, 0]).flat_map(|w| w.to_le_bytes()).collect();
    simulator.write(data, &input).unwrap();
    let shape = Shape { ..threads(cases.len() as u32) };
    let launch = simulator.launch("k", shape, &[&data.to_le_bytes(), &out.to_le_bytes(), &[0; 128]]);
    launch.unwrap_or_else(|e| panic!("{body}: {e}"));
    for (i, case) in cases.iter().enumerate() {
        let mut got = [0; 4];
        simulator.read(out + 16 * i as u64, &mut got).unwrap();
        let (got, want) = (u32::from_le_bytes(got), expected(*case));
        assert_eq!(got, want, "{body} of {case:x?}: {got:#x}, not {want:#x}");
    }
}

fn float(x: f32) -> u32 {
    if x.is_nan() { 0x7FFF_FFFF } else { x.to_bits() }
}

fn of(word: u32) -> f32 {
    f32::from_bits(word)
}

fn pair(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[test]
fn bit_fields() {
    check("lop3.b32 %r4, %r1, %r2, %r3, 0xE8;", |[a, b, c]| a & b | b & c | a & c);
    check("prmt.b32 %r4, %r1, %r2, 0x5410;", |[a, b, _]| a & 0xFFFF | b << 16);
    check("prmt.b32 %r4, %r1, %r2, 0x7632;", |[a, b, _]| a >> 16 | b & 0xFFFF_0000);
    // The sign of a byte, copied.
    check("prmt.b32 %r4, %r1, %r2, 0xBB21;", |[a, ..]| a >> 8 & 0xFFFF | if a >> 31 == 1 { 0xFFFF_0000 } else { 0 });
    check("and.b32 %r6, %r3, 3;\nprmt.b32.f4e %r4, %r1, %r2, %r6;", |[a, b, c]| {
        ((u64::from(b) << 32 | u64::from(a)) >> (8 * (c & 3))) as u32
    });
    check("and.b32 %r6, %r3, 3;\nprmt.b32.rc8 %r4, %r1, %r2, %r6;", |[a, _, c]| {
        (a >> (8 * (c & 3)) & 255) * 0x0101_0101
    });
    check("and.b32 %r6, %r3, 1;\nprmt.b32.rc16 %r4, %r1, %r2, %r6;", |[a, _, c]| {
        (a >> (16 * (c & 1)) & 0xFFFF) * 0x1_0001
    });
    check("bfe.u32 %r4, %r1, 5, 11;", |[a, ..]| a >> 5 & 0x7FF);
    check("bfe.s32 %r4, %r1, 5, 11;", |[a, ..]| ((a << 16) as i32 >> 21) as u32);
    check("bfi.b32 %r4, %r1, %r2, 7, 9;", |[a, b, _]| b & !(0x1FF << 7) | (a & 0x1FF) << 7);
    check("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", |[a, b, c]| {
        ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32
    });
    check("bfind.shiftamt.u32 %r4, %r1;", |[a, ..]| if a == 0 { u32::MAX } else { a.leading_zeros() });
    check("bfind.s32 %r4, %r1;", |[a, ..]| match a as i32 {
        0 | -1 => u32::MAX,
        x if x < 0 => 31 - (!a).leading_zeros(),
        _ => 31 - a.leading_zeros(),
    });
    check("popc.b32 %r4, %r1;", |[a, ..]| a.count_ones());
    check("bmsk.clamp.b32 %r4, %r1, %r2;", |[a, b, _]| {
        let ones = if b > 31 { u32::MAX } else { (1 << b) - 1 };
        if a > 31 { 0 } else { ones << a }
    });
}

#[test]
fn f32_arithmetic() {
    check("fma.rn.f32 %r4, %r1, %r2, %r3;", |[a, b, c]| float(of(a).mul_add(of(b), of(c))));
    check("add.rn.f32 %r4, %r1, %r2;", |[a, b, _]| float(of(a) + of(b)));
    check("mul.f32 %r4, %r1, %r2;", |[a, b, _]| float(of(a) * of(b)));
    check("div.rn.f32 %r4, %r1, %r2;", |[a, b, _]| float(of(a) / of(b)));
    check("max.f32 %r4, %r1, %r2;", |[a, b, _]| match (of(a).is_nan(), of(b).is_nan()) {
        (true, true) => 0x7FFF_FFFF,
        (true, false) => b,
        (false, true) => a,
        // -0 is below +0.
        _ if of(a) == of(b) => a & b,
        _ => float(of(a).max(of(b))),
    });
    check("setp.lt.f32 %p1, %r1, %r2;\nselp.b32 %r4, %r1, %r3, %p1;", |[a, b, c]| if of(a) < of(b) { a } else { c });
    check("cvt.rni.s32.f32 %r4, %r1;", |[a, ..]| of(a).round_ties_even() as i32 as u32);
    check("cvt.rn.f32.s32 %r4, %r1;", |[a, ..]| (a as i32 as f32).to_bits());
}

#[test]
fn conversions_of_halves() {
    let b = |x: u32| if of(x).is_nan() { 0x7FFF } else { bf16::from_f32(of(x)).to_bits() };
    let h = |x: u32| if of(x).is_nan() { 0x7FFF } else { f16::from_f32(of(x)).to_bits() };
    check("cvt.rn.bf16x2.f32 %r4, %r1, %r2;", |[x, y, _]| pair(b(y), b(x)));
    check("cvt.rn.f16x2.f32 %r4, %r1, %r2;", |[x, y, _]| pair(h(y), h(x)));
    check("cvt.rn.relu.bf16x2.f32 %r4, %r1, %r2;", |[x, y, _]| {
        let relu = |x| if of(x) < 0.0 || x == 1 << 31 { 0 } else { b(x) };
        pair(relu(y), relu(x))
    });
    let narrow = "{\n.reg .b16 %h<2>;\n";
    check(&format!("{narrow}cvt.rn.bf16.f32 %h0, %r1;\nmov.b32 %r4, {{%h0, %h0}};\n}}"), |[x, ..]| pair(b(x), b(x)));
    check(&format!("{narrow}cvt.rn.f16.f32 %h0, %r1;\nmov.b32 %r4, {{%h0, %h0}};\n}}"), |[x, ..]| pair(h(x), h(x)));
    check(&format!("{narrow}mov.b32 {{%h0, %h1}}, %r1;\ncvt.f32.bf16 %r4, %h1;\n}}"), |[x, ..]| x & 0xFFFF_0000);
    check(&format!("{narrow}mov.b32 {{%h0, %h1}}, %r1;\ncvt.f32.f16 %r4, %h0;\n}}"), |[x, ..]| {
        float(f16::from_bits(x as u16).to_f32())
    });
}

/// The 16-bit number nearest to `exact`; of two, the even one. `near` is one of its neighbours.
fn nearest(exact: f64, near: u16, value: impl Fn(u16) -> f64) -> u16 {
    if exact.is_nan() {
        return 0x7FFF;
    }
    if !value(near).is_finite() {
        return near;
    }
    let magnitude = near & 0x7FFF;
    let candidates = [magnitude.saturating_sub(1), magnitude, magnitude + 1].map(|m| m | near & 0x8000);
    let distance = |bits: &u16| ((value(*bits) - exact).abs(), bits & 1);
    candidates.into_iter().min_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap()).unwrap()
}

/// a b + c; what f64 cannot hold still shows in the last place, which no 16-bit number reaches.
fn fused([a, b, c]: [f64; 3]) -> f64 {
    let (product, sum) = (a * b, a * b + c);
    let back = sum - product;
    let lost = (product - (sum - back)) + (c - back);
    match () {
        () if lost > 0.0 => sum.next_up(),
        () if lost < 0.0 => sum.next_down(),
        () => sum,
    }
}

/// One operation on both halves of each register.
#[track_caller]
fn halves(name: &str, sources: usize, f: impl Fn([f64; 3]) -> f64) {
    let operands = ["%r1", "%r1, %r2", "%r1, %r2, %r3"][sources - 1];
    let brain = |bits: u16| f64::from(bf16::from_bits(bits).to_f32());
    check(&format!("{name}.bf16x2 %r4, {operands};"), |case| {
        let half = |shift: u32| {
            let exact = f(case.map(|word| brain((word >> shift) as u16)));
            nearest(exact, bf16::from_f64_const(exact).to_bits(), brain)
        };
        pair(half(0), half(16))
    });
    let ieee = |bits: u16| f64::from(f16::from_bits(bits).to_f32());
    check(&format!("{name}.f16x2 %r4, {operands};"), |case| {
        let half = |shift: u32| {
            let exact = f(case.map(|word| ieee((word >> shift) as u16)));
            nearest(exact, f16::from_f64_const(exact).to_bits(), ieee)
        };
        pair(half(0), half(16))
    });
}

#[test]
fn pairs_of_halves() {
    halves("add.rn", 2, |[a, b, _]| a + b);
    halves("sub.rn", 2, |[a, b, _]| a - b);
    halves("mul.rn", 2, |[a, b, _]| a * b);
    halves("fma.rn", 3, fused);
    halves("fma.rn.relu", 3, |case| {
        let exact = fused(case);
        if exact.is_sign_negative() && !exact.is_nan() { 0.0 } else { exact }
    });
    check("neg.bf16x2 %r4, %r1;", |[a, ..]| a ^ 0x8000_8000);
    check("abs.bf16x2 %r4, %r1;", |[a, ..]| a & 0x7FFF_7FFF);
    // The result is known by what it must be between: ex2 of halves is approximate.
    check("mov.b32 %r1, 0xC0003F80;\nex2.approx.ftz.bf16x2 %r4, %r1;", |_| 0x3E80_4000);
}

/// 3/2 * (1 + 1/128) lies midway between two numbers of bf16, so that the addend decides, however small it is.
#[test]
fn fused_halves_are_rounded_once() {
    let of = |x: f32| u32::from(bf16::from_f32(x).to_bits());
    let body = |c: f32| {
        let [a, b, c] = [1.5, 1.0 + 1.0 / 128.0, c].map(of);
        format!("mov.b32 %r1, {a};\nmov.b32 %r2, {b};\nmov.b32 %r3, {c};\nfma.rn.bf16x2 %r4, %r1, %r2, %r3;")
    };
    let (below, above) = (of(1.507_812_5), of(1.515_625));
    check(&body(2f32.powi(-100)), |_| above);
    check(&body(-(2f32.powi(-100))), |_| below);
    check(&body(0.0), |_| above & !1);
}

#[test]
fn directed_rounding() {
    let cut = |exact: f64| {
        let near = exact as f32;
        if near.is_finite() && f64::from(near).abs() > exact.abs() { near.to_bits() - 1 } else { float(near) }
    };
    check("mul.rz.f32 %r4, %r1, %r2;", |[a, b, _]| match f64::from(of(a)) * f64::from(of(b)) {
        exact if (exact as f32).is_infinite() && exact.is_finite() => f32::MAX.copysign(exact as f32).to_bits(),
        exact => cut(exact),
    });
    let sum = |mode: &str| format!("mov.b32 %r1, 0x3F800000;\nmov.b32 %r2, 0xA2000000;\nadd.{mode}.f32 %r4, %r1, %r2;");
    check(&sum("rz"), |_| 0x3F7F_FFFF);
    check(&sum("rm"), |_| 0x3F7F_FFFF);
    check(&sum("rp"), |_| 0x3F80_0000);
    check(&sum("rn"), |_| 0x3F80_0000);
}
