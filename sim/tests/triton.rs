//! Kernels that another compiler wrote, and that hardware is known to run: Triton's GEMMs, softmax and attention for
//! sm_90 and sm_100, against plain references. `cargo xtask sim triton` compiles them and runs these tests.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::path::PathBuf;

use cudasim::float::{E4M3, ue8m0};
use cudasim::harness::{Shape, Simulator};
use cudasim::tensor_map::EncodeTiled;
use half::f16;

const CAPABILITIES: [u32; 2] = [90, 100];
const SEEDS: u64 = 3;

/// A compiled kernel on a device of its own.
struct Kernel {
    name: &'static str,
    simulator: Simulator,
    shape: Shape,
}

impl Kernel {
    /// `CUDASIM_TRITON` names the folder where `triton/kernels.py` has put one folder for each capability.
    fn load(name: &'static str, capability: u32, grid: [u32; 3], seed: u64) -> Self {
        let folder = std::env::var_os("CUDASIM_TRITON").unwrap_or_else(|| panic!("run `cargo xtask sim triton`"));
        let file = PathBuf::from(folder).join(capability.to_string()).join(name);
        let text = std::fs::read_to_string(file.with_extension("ptx")).unwrap();
        let facts = std::fs::read_to_string(file.with_extension("txt")).unwrap();
        let (shared, warps) = facts.trim().split_once(' ').unwrap();
        let (dynamic, warps): (u32, u32) = (shared.parse().unwrap(), warps.parse().unwrap());
        let block = [32 * warps, 1, 1];
        let shape = Shape { grid, block, dynamic, registers: 255, seed, ..Shape::default() };
        Kernel { name, simulator: Simulator::new(&text).unwrap_or_else(|e| panic!("{name}: {e}")), shape }
    }

    fn upload(&mut self, bytes: &[u8]) -> u64 {
        let address = self.simulator.allocate(bytes.len());
        self.simulator.write(address, bytes).unwrap();
        address
    }

    fn run(&mut self, params: &[&[u8]], out: u64, count: usize) -> Vec<f32> {
        // Two pointers to scratch memory that these kernels do not use.
        let null = 0u64.to_le_bytes();
        let params: Vec<&[u8]> = params.iter().copied().chain([&null[..], &null[..]]).collect();
        let (name, shape) = (self.name, self.shape);
        self.simulator.launch(name, shape, &params).unwrap_or_else(|e| panic!("seed {}: {e}", shape.seed));
        let mut bytes = vec![0; 4 * count];
        self.simulator.read(out, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// Values that fp16 holds exactly, from -1 to 1.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 24) as f32 - 128.0) / 128.0
    };
    (0..count).map(|_| next()).collect()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect()
}

#[track_caller]
fn close(got: &[f32], want: &[f32], tolerance: f32) {
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance, "element {at} is {got}, not {want}");
    }
}

const M: usize = 256;
const N: usize = 128;
const K: usize = 192;

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut c = vec![0f32; M * N];
    for i in 0..M {
        for k in 0..K {
            for j in 0..N {
                c[i * N + j] += a[i * K + k] * b[k * N + j];
            }
        }
    }
    c
}

#[test]
#[ignore = "needs Triton"]
fn gemm_by_pointers() {
    let (a, b) = (values(M * K, 1), values(K * N, 2));
    for (capability, seed) in CAPABILITIES.into_iter().flat_map(|c| (0..SEEDS).map(move |s| (c, s))) {
        let mut kernel = Kernel::load("gemm_pointers", capability, [2, 2, 1], seed);
        let [pa, pb] = [&a, &b].map(|x| kernel.upload(&halves(x)).to_le_bytes());
        let out = kernel.simulator.allocate(4 * M * N);
        let [k, a_row, b_row, c_row] = [K, K, N, N].map(|n| (n as u32).to_le_bytes());
        let got = kernel.run(&[&pa, &pb, &out.to_le_bytes(), &k, &a_row, &b_row, &c_row], out, M * N);
        close(&got, &product(&a, &b), 1e-3);
    }
}

#[repr(align(128))]
struct Aligned([u8; 128]);

/// A map of a row-major fp16 matrix with boxes of 64 columns.
fn map(address: u64, rows: usize, columns: usize, box_rows: u32) -> Aligned {
    let mut map = Aligned([0; 128]);
    let encoded = EncodeTiled {
        object: map.0.as_ptr() as u64,
        data_type: 6,
        rank: 2,
        address,
        dims: &[columns as u64, rows as u64],
        strides: &[2 * columns as u64],
        box_dims: &[64, box_rows],
        element_strides: &[1, 1],
        interleave: 0,
        swizzle: 3,
        l2: 0,
        fill: 0,
        blackwell: true,
    };
    map.0 = encoded.encode().unwrap().to_bytes();
    map
}

#[test]
#[ignore = "needs Triton"]
fn gemm_by_tensor_descriptors() {
    let (a, b) = (values(M * K, 3), values(K * N, 4));
    for (capability, seed) in CAPABILITIES.into_iter().flat_map(|c| (0..SEEDS).map(move |s| (c, s))) {
        let mut kernel = Kernel::load("gemm_descriptors", capability, [2, 2, 1], seed);
        let [pa, pb] = [&a, &b].map(|x| kernel.upload(&halves(x)));
        let out = kernel.simulator.allocate(4 * M * N);
        let (map_a, map_b) = (map(pa, M, K, 128), map(pb, K, N, 64));
        let [m, n, k] = [M, N, K].map(|n| (n as u32).to_le_bytes());
        let [n_wide, k_wide, one] = [N, K, 1].map(|n| (n as u64).to_le_bytes());
        let params: [&[u8]; 13] =
            [&map_a.0, &m, &k, &k_wide, &one, &map_b.0, &k, &n, &n_wide, &one, &out.to_le_bytes(), &k, &n];
        let got = kernel.run(&params, out, M * N);
        close(&got, &product(&a, &b), 1e-3);
    }
}

#[test]
#[ignore = "needs Triton"]
fn softmax_of_rows() {
    let (rows, n) = (3, 1000);
    let x = values(rows * n, 5);
    let want: Vec<f32> = x
        .chunks(n)
        .flat_map(|row| {
            let total: f32 = row.iter().map(|x| x.exp()).sum();
            row.iter().map(move |x| x.exp() / total)
        })
        .collect();
    for capability in CAPABILITIES {
        let mut kernel = Kernel::load("softmax", capability, [rows as u32, 1, 1], 1);
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let input = kernel.upload(&bytes).to_le_bytes();
        let out = kernel.simulator.allocate(4 * rows * n);
        let got = kernel.run(&[&input, &out.to_le_bytes(), &(n as u32).to_le_bytes()], out, rows * n);
        close(&got, &want, 1e-7);
    }
}

#[test]
#[ignore = "needs Triton"]
fn attention_of_one_head() {
    let (queries, keys, dim) = (256, 192, 64);
    let [q, k, v] = [(queries, 6), (keys, 7), (keys, 8)].map(|(rows, seed)| values(rows * dim, seed));
    let scale = 0.25f32;
    let mut want = vec![0f32; queries * dim];
    for (q, o) in q.chunks(dim).zip(want.chunks_mut(dim)) {
        let dot = |k: &[f32]| q.iter().zip(k).map(|(a, b)| a * b).sum::<f32>();
        let p: Vec<f32> = k.chunks(dim).map(|k| (dot(k) * scale).exp2()).collect();
        let total: f32 = p.iter().sum();
        for (p, v) in p.iter().zip(v.chunks(dim)) {
            o.iter_mut().zip(v).for_each(|(o, v)| *o += p / total * v);
        }
    }
    for (capability, seed) in CAPABILITIES.into_iter().flat_map(|c| (0..SEEDS).map(move |s| (c, s))) {
        let mut kernel = Kernel::load("attention", capability, [2, 1, 1], seed);
        let [pq, pk, pv] = [&q, &k, &v].map(|x| kernel.upload(&halves(x)).to_le_bytes());
        let out = kernel.simulator.allocate(4 * queries * dim);
        let count = (keys as u32).to_le_bytes();
        let got = kernel.run(&[&pq, &pk, &pv, &out.to_le_bytes(), &count, &scale.to_le_bytes()], out, queries * dim);
        close(&got, &want, 2e-3);
    }
}

#[test]
#[ignore = "needs Triton"]
fn block_scaled_gemm() {
    let (m, n, k) = (128, 128, 256);
    let codes = |count: usize, seed: u32| -> Vec<u8> {
        let magnitude = |x: f32| ((x.abs() * 60.0) as u8 + 8) | if x < 0.0 { 0x80 } else { 0 };
        values(count, seed).into_iter().map(magnitude).collect()
    };
    let scales = |count: usize, seed: u32| -> Vec<u8> {
        values(count, seed).into_iter().map(|x| (127.0 + 3.0 * x) as u8).collect()
    };
    let (a, b) = (codes(m * k, 9), codes(n * k, 10));
    let (a_scale, b_scale) = (scales(m * k / 32, 11), scales(n * k / 32, 12));
    let value = |codes: &[u8], scales: &[u8], row: usize, at: usize| {
        E4M3.decode(codes[row * k + at].into()) * ue8m0(scales[row * (k / 32) + at / 32])
    };
    let mut want = vec![0f32; m * n];
    for (i, row) in want.chunks_mut(n).enumerate() {
        for (j, c) in row.iter_mut().enumerate() {
            *c = (0..k).map(|at| value(&a, &a_scale, i, at) * value(&b, &b_scale, j, at)).sum();
        }
    }
    let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    for seed in 0..SEEDS {
        let mut kernel = Kernel::load("gemm_scaled", 100, [1, 1, 1], seed);
        let [pa, pb, sa, sb] = [&a, &b, &a_scale, &b_scale].map(|x| kernel.upload(x).to_le_bytes());
        let out = kernel.simulator.allocate(4 * m * n);
        let [k, row] = [k, n].map(|n| (n as u32).to_le_bytes());
        let got = kernel.run(&[&pa, &pb, &out.to_le_bytes(), &sa, &sb, &k, &row], out, m * n);
        close(&got, &want, 1e-5 * largest);
    }
}
