//! Twins of kernels: one commits a fault, the other does not.
//!
//! One text holds both: lines that begin with `~` are in the corrected kernel only, lines that begin with `+` in the
//! faulty one only.

#![allow(dead_code, reason = "not every test program needs all of it")]

use cudasim::error::{Fault, Kind};
use cudasim::harness::{Shape, Simulator};
use cudasim::tensor_map::EncodeTiled;

const SEEDS: u64 = 24;

pub struct Case {
    pub shape: Shape,
    pub text: &'static str,
    /// Swizzle of the tensor map that the kernel gets.
    pub swizzle: u32,
    pub target: &'static str,
}

pub fn threads(count: u32) -> Shape {
    Shape { block: [count, 1, 1], ..Shape::default() }
}

pub fn case(shape: Shape, text: &'static str) -> Case {
    Case { shape, text, swizzle: 3, target: "sm_90a" }
}

/// The kernel: `data` is 4 KiB of global memory, `out` 4 KiB that nothing has written, `map` a map of 64 x 16 bf16 on
/// `data`.
pub fn source(text: &str, target: &str, faulty: bool) -> String {
    let (skip, keep) = if faulty { ('~', '+') } else { ('+', '~') };
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with(skip))
        .map(|line| line.strip_prefix(keep).unwrap_or(line))
        .collect();
    format!(
        ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 data, .param .u64 out, \
         .param .align 64 .b8 map[128])\n.maxntid 256, 1, 1\n{{\n.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<32>;\n\
         .reg .f32 %f<32>;\n.shared .align 1024 .b8 s[8192];\n.shared .align 8 .b8 bar[64];\n\
         ld.param.u64 %d30, [data];\nld.param.u64 %d31, [out];\nmov.u32 %r31, %tid.x;\nshr.u32 %r30, %r31, 5;\n\
         mov.u32 %r29, s;\nmov.u32 %r28, bar;\n{}\nret;\n}}\n",
        lines.join("\n")
    )
}

#[repr(align(128))]
struct Aligned([u8; 128]);

/// The tensor map of a kernel that needs none.
pub fn no_map(_data: u64, _out: u64) -> [u8; 128] {
    [0; 128]
}

/// A map of a dense matrix of `width` x `height` elements of this type, in boxes of `box_dims`.
pub fn matrix_map(
    address: u64,
    data_type: u32,
    size: u64,
    dims: [u64; 2],
    box_dims: [u32; 2],
    swizzle: u32,
) -> [u8; 128] {
    let mut map = Aligned([0; 128]);
    let encoded = EncodeTiled {
        object: map.0.as_ptr() as u64,
        data_type,
        rank: 2,
        address,
        dims: &dims,
        strides: &[dims[0] * size],
        box_dims: &box_dims,
        element_strides: &[1, 1],
        interleave: 0,
        swizzle,
        l2: 0,
        fill: 0,
        blackwell: false,
    };
    map.0 = encoded.encode().unwrap().to_bytes();
    map.0
}

/// Runs a kernel of one text on this `data`; what becomes of `out`, whose bytes count as unwritten if there are none.
pub fn launch(
    text: &str,
    shape: Shape,
    data: &[u8],
    (out, bytes): (&[u8], usize),
    map: impl FnOnce(u64, u64) -> [u8; 128],
) -> Result<Vec<u8>, Fault> {
    let mut simulator = Simulator::new(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let (data_at, out_at) = (simulator.allocate(data.len()), simulator.allocate(bytes));
    simulator.write(data_at, data).unwrap();
    simulator.write(out_at, out).unwrap();
    let map = map(data_at, out_at);
    simulator.launch("k", shape, &[&data_at.to_le_bytes(), &out_at.to_le_bytes(), &map])?;
    let mut result = vec![0; bytes];
    simulator.read(out_at, &mut result)?;
    Ok(result)
}

/// Runs one of the twins; the 4 KiB of `out`.
pub fn run(case: &Case, faulty: bool, seed: u64) -> Result<Vec<u8>, Fault> {
    let text = source(case.text, case.target, faulty);
    let map = |data, _| matrix_map(data, 9, 2, [64, 16], [64, 8], case.swizzle);
    launch(&text, Shape { seed, ..case.shape }, &[0x3c; 4096], (&[], 4096), map)
}

/// Runs both kernels with many interleavings; the text of one report.
#[track_caller]
pub fn check(case: &Case, kinds: &[Kind]) -> String {
    let mut found = String::new();
    for seed in 0..SEEDS {
        if let Err(fault) = run(case, false, seed) {
            panic!("the corrected kernel, seed {seed}: {fault}");
        }
        if let Err(fault) = run(case, true, seed) {
            assert!(kinds.contains(&fault.kind), "seed {seed}: {fault}");
            found = fault.to_string();
        }
    }
    assert!(!found.is_empty(), "no interleaving showed the fault");
    found
}
