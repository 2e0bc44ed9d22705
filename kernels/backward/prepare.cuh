// The kernel ahead of the backward: row statistics, and zeros where sums begin. Runs on every architecture.
#pragma once

#include "attention/tiles.cuh"
#include "ptx/sync.cuh"
#include "ptx/warp.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace jfa {

constexpr int kSideThreads = 256;  // of a CTA of the kernels before and after the backward

// Visits the blocks of 64 queries of the batch and their heads, with all threads of a CTA:
// visit(head, block, sequence, batch), dealt round robin. Descriptions are loaded ahead: the entry two blocks, the
// sequence one.
template <typename Visit>
__device__ __forceinline__ void for_each_query_block(const BackwardParams& p, Visit visit) {
  const ForwardSchedule& s = p.forward;
  const uint32_t parts = s.block_m / kStatRows, inner = s.blocks_per_entry * parts, width = s.heads * inner;
  const uint32_t count = (s.state->forward_entries + s.state->keyless_entries) * width, step = gridDim.x;
  auto entry_of = [&](uint32_t index) { return s.entries[min(index, count - 1) / width]; };
  if (blockIdx.x >= count) return;
  Entry entry = entry_of(blockIdx.x), next = entry_of(blockIdx.x + step);
  Sequence seq = s.sequences[entry.batch];
  for (uint32_t index = blockIdx.x; index < count; index += step) {
    const Entry after = entry_of(index + 2 * step);
    const Sequence next_seq = s.sequences[next.batch];
    const int32_t block = entry.block * parts + index % inner;
    if (block * kStatRows < seq.len_q) visit(index % width / inner, block, seq, entry.batch);
    entry = next;
    seq = next_seq;
    next = after;
  }
}

template <typename T>
__device__ __forceinline__ float2 unpack(uint32_t packed) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&packed));
  }
}

// Sum of the products of eight elements.
template <typename T>
__device__ __forceinline__ float dot8(uint4 a, uint4 b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<T>((&a.x)[i]), y = unpack<T>((&b.x)[i]);
    sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
  }
  return sum;
}

// Zeroes the sums of a block of queries, 16 rows of 64 columns at a time as in sum_offset(); `rows` of its rows exist.
template <int kDim>
JFA_INLINE void zero_sums(const BackwardParams& p, uint32_t head, int64_t sum_block, int rows) {
  const int64_t block = static_cast<int64_t>(head) * p.grad_q_blocks + sum_block;
  auto* to = reinterpret_cast<float4*>(p.sums + block * (kStatRows * kDim)) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    if (i % 4 * 16 < rows) to[i * kSideThreads] = make_float4(0, 0, 0, 0);
  }
}

// For every query: its LSE in base 2, and delta = sum of O dO over the columns. kLanes threads read a row of one head
// together. A CTA takes 64 rows that follow each other in memory, heads innermost: a part of a block of 64 queries.
template <typename T, int kLanes>
__device__ __forceinline__ void prepare_backward(const BackwardParams& p) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  constexpr int kRows = kSideThreads / kLanes, kPasses = kStatRows / kRows;
  const uint32_t heads = p.forward.heads, lane = threadIdx.x % kLanes;
  auto prepare = [&](uint32_t part, int32_t block, int64_t begin_o, int32_t len_q, uint32_t batch) {
    uint4 x[kPasses], y[kPasses];
    float lse[kPasses];
    auto visit = [&](auto each) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const uint32_t line = part * kStatRows + pass * kRows + threadIdx.x / kLanes;
        each(pass, static_cast<int32_t>(line / heads), line % heads);
      }
    };
    visit([&](int pass, int32_t row, uint32_t head) {
      x[pass] = y[pass] = make_uint4(0, 0, 0, 0);
      lse[pass] = -INFINITY;
      const int32_t query = block * kStatRows + row;
      if (query >= len_q || lane * 8 >= p.head_dim) return;
      auto at = [&](const Tensor& t) {
        return static_cast<const T*>(t.data) + (begin_o + query) * t.row_stride + head * t.head_stride + lane * 8;
      };
      x[pass] = ptx::load_global_once(at(p.o));
      y[pass] = ptx::load_global_once(at(p.grad_o));
      if (lane == 0) lse[pass] = p.lse[begin_o * p.lse_begin_scale + head * p.lse_head_stride + query];
    });
    visit([&](int pass, int32_t row, uint32_t head) {
      float delta = dot8<T>(x[pass], y[pass]);
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2) delta += __shfl_xor_sync(~0u, delta, distance);
      if (lane != 0) return;
      const int64_t at = static_cast<int64_t>(head) * p.stat_blocks + stat_block(begin_o, batch) + block;
      float* stats = p.stats + at * 2 * kStatRows + row;
      stats[0] = lse[pass] == -INFINITY ? INFINITY : lse[pass] * 1.4426950408889634f;
      stats[kStatRows] = lse[pass] == -INFINITY ? 0 : delta;
    });
  };
  if (p.broadcast_q) {
    const uint32_t each = heads * p.grad_q_blocks;
    for (uint32_t index = blockIdx.x; index < p.batch * each; index += gridDim.x) {
      const uint32_t batch = index / each;
      prepare(index % heads, index % each / heads, static_cast<int64_t>(batch) * p.seqlen_q, p.seqlen_q, batch);
    }
  } else {
    for_each_query_block(p, [&](uint32_t part, int32_t block, const Sequence& seq, uint32_t batch) {
      prepare(part, block, seq.begin_o, seq.len_q, batch);
      if (!has_sums_made(p, seq, block)) {
        zero_sums<kLanes * 8>(p, part, stat_block(seq.begin_o, batch) + block, seq.len_q - block * kStatRows);
      }
    });
  }
  // Last, so that zeros are still in L2 when sums are added to them.
  const int64_t zeros = p.zero_floats / 4, threads = static_cast<int64_t>(gridDim.x) * kSideThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kSideThreads + threadIdx.x; i < zeros; i += threads) {
    reinterpret_cast<float4*>(p.zeros)[i] = make_float4(0, 0, 0, 0);
  }
}

}  // namespace jfa
