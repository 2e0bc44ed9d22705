"""Compiles a few kernels with Triton, which needs no GPU for that: python kernels.py FOLDER CAPABILITY.

Writes NAME.ptx and, in NAME.txt, the bytes of shared memory and the warps of a launch.
"""

import pathlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def gemm_pointers(
    a_ptr, b_ptr, c_ptr, k, a_row, b_row, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * a_row + depth[None, :]
    b = b_ptr + depth[:, None] * b_row + columns[None, :]
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(k, BK)):
        sum = tl.dot(tl.load(a), tl.load(b), sum)
        a += BK
        b += BK * b_row
    tl.store(c_ptr + rows[:, None] * c_row + columns[None, :], sum)


@triton.jit
def gemm_descriptors(a, b, c_ptr, k, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        sum = tl.dot(a.load([row, at]), b.load([at, column]), sum)
    rows = row + tl.arange(0, BM)
    columns = column + tl.arange(0, BN)
    tl.store(c_ptr + rows[:, None] * c_row + columns[None, :], sum)


@triton.jit
def softmax(x_ptr, y_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, keys, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :])
    sum = tl.zeros((BM, D), dtype=tl.float32)
    largest = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, keys, BN):
        k = tl.load(k_ptr + (first + n)[:, None] * D + d[None, :])
        v = tl.load(v_ptr + (first + n)[:, None] * D + d[None, :])
        s = tl.dot(q, k.T) * scale
        new = tl.maximum(largest, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        factor = tl.math.exp2(largest - new)
        total = total * factor + tl.sum(p, 1)
        sum = tl.dot(p.to(tl.float16), v, sum * factor[:, None])
        largest = new
    tl.store(o_ptr + rows[:, None] * D + d[None, :], sum / total[:, None])


@triton.jit
def gemm_scaled(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, k, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """MXFP8: A is [m, k], B is [n, k], a scale for every 32 values along k."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    group = tl.arange(0, BK // 32)
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        a = tl.load(a_ptr + rows[:, None] * k + at + depth[None, :])
        b = tl.load(b_ptr + columns[:, None] * k + at + depth[None, :])
        a_scale = tl.load(a_scale_ptr + rows[:, None] * (k // 32) + at // 32 + group[None, :])
        b_scale = tl.load(b_scale_ptr + columns[:, None] * (k // 32) + at // 32 + group[None, :])
        sum = tl.dot_scaled(a, a_scale, "e4m3", b.T, b_scale, "e4m3", sum)
    tl.store(c_ptr + rows[:, None] * c_row + columns[None, :], sum)


def main():
    folder, capability = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    tiles = {"BM": 128, "BN": 64, "BK": 64}
    kernels = [
        (gemm_pointers, "*fp16 *fp16 *fp32 i32 i32 i32 i32", tiles),
        (gemm_descriptors, "tensordesc<fp16[128,64]> tensordesc<fp16[64,64]> *fp32 i32 i32", tiles),
        (softmax, "*fp32 *fp32 i32", {"B": 1024}),
        (attention, "*fp16 *fp16 *fp16 *fp32 i32 fp32", {"BM": 128, "BN": 64, "D": 64}),
    ]
    if capability >= 100:
        types = "*fp8e4nv *fp8e4nv *fp32 *u8 *u8 i32 i32"
        kernels.append((gemm_scaled, types, {"BM": 128, "BN": 128, "BK": 128}))
    for kernel, types, constants in kernels:
        names = kernel.arg_names
        types = types.split() + ["constexpr"] * len(constants)
        signature = dict(zip(names, types))
        aligned = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types) if t[0] == "*" or t == "i32"}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
        options = {"num_warps": 4, "num_stages": 3}
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        name = kernel.__name__
        (folder / f"{name}.ptx").write_text(compiled.asm["ptx"])
        (folder / f"{name}.txt").write_text(f"{compiled.metadata.shared} {compiled.metadata.num_warps}\n")


if __name__ == "__main__":
    main()
