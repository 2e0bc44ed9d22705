// dQ from its sums: at the end of a backward of broadcast Q, in a kernel behind that of packed Q. Runs on every
// architecture.
#pragma once

#include "attention/cta.cuh"
#include "backward/prepare.cuh"
#include "ptx/math.cuh"

namespace jfa {

// Threads of a CTA that finish_sums(), and the named barrier where they meet.
constexpr int kFinishThreads = 256, kFinishBarrier = 6;
constexpr uint32_t kFinishShares = 128;  // of dQ; about as many as CTAs

// Where four elements of a block of sums lie in dQ, the inverse of sum_offset(): two of a row from `column` +
// 2 (lane % 4) on, two of the row eight below.
struct SumPlace {
  int lane, row, column;

  __device__ explicit SumPlace(int item)
      : lane(item % 32), row(item / 256 % 4 * 16 + lane / 4), column((item / 1024 * 8 + item / 32 % 8) * 8) {}
};

// Four elements of dQ, at place `item` of a block of 64 queries: the sum of all parts in their order.
template <int kDim>
JFA_INLINE float4 load_sum(const BackwardParams& p, uint32_t head, int64_t sum_block, int item) {
  constexpr int kFloats = kStatRows * kDim;
  const int64_t stride = static_cast<int64_t>(p.forward.heads) * p.grad_q_blocks * kFloats;
  const float* at = p.sums + (static_cast<int64_t>(head) * p.grad_q_blocks + sum_block) * kFloats + item * 4;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int part = 0; part < p.parts; ++part) {
    const float4 x = *reinterpret_cast<const float4*>(at + part * stride);
    sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
  }
  return sum;
}

// Neighbouring elements in global memory.
template <int kBytes>
struct alignas(kBytes < 16 ? kBytes : 16) Words {
  uint32_t x[kBytes / 4];
};

// Writes kCount neighbouring elements of a row of dQ from their sums, or adds them to what is there.
template <typename T, int kCount>
JFA_INLINE void write_grad_q(const BackwardParams& p, uint32_t head, int64_t row, int column, const float* sums) {
  const int64_t offset = row * p.grad_q.row_stride + head * p.grad_q.head_stride + column;
  auto update = [&]<int kBytes>(Words<kBytes>* to, auto add) {
    Words<kBytes> words = {};
    if (p.accumulate & BackwardParams::kAccumulateQ) words = *to;
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) words.x[i] = add(words.x[i], i);
    *to = words;
  };
  if (p.grad_q_fp32) {
    update(reinterpret_cast<Words<4 * kCount>*>(static_cast<float*>(p.grad_q.data) + offset),
           [&](uint32_t old, int i) { return __float_as_uint(__uint_as_float(old) + sums[i] * p.scale); });
  } else {
    update(reinterpret_cast<Words<2 * kCount>*>(static_cast<T*>(p.grad_q.data) + offset), [&](uint32_t old, int i) {
      const float2 x = unpack<T>(old);
      return ptx::pack<T>(x.x + sums[2 * i] * p.scale, x.y + sums[2 * i + 1] * p.scale);
    });
  }
}

// Makes dQ of a broadcast Q when all CTAs have made their sums, as this one has; it had `places` of the launch. CTAs
// that are early wait to take their share, but not for ever, and not at all while some CTA has no multiprocessor yet:
// it may need this one. The last one needs nobody. `share`: a word of shared memory.
template <typename T, int kDim>
JFA_INLINE void finish_sums(const BackwardParams& p, uint32_t places, uint32_t* share, int thread) {
  if (!p.broadcast_q || p.schedule.state->error != PlanError::kNone) return;
  constexpr int kPieces = kStatRows * kDim / 4 / kFinishThreads;  // of a block
  constexpr int kAhead = 2;                                       // pieces loaded before one is written
  const uint32_t pieces = p.forward.heads * p.grad_q_blocks * kPieces;
  uint32_t next = 0;
  if (thread == 0) {
    const uint32_t begun = *static_cast<const volatile uint32_t*>(&p.progress->begun);
    uint32_t ended = ptx::fetch_add_acq_rel(&p.progress->ended, places) + places;
    // Far longer than a tile takes: a step of it takes about as long as five questions.
    const int64_t patience = 64 + int64_t{32} * p.grad_q_blocks * p.group * p.schedule.chain;
    for (int64_t i = 0; begun == gridDim.x && i < patience && ended < gridDim.x; ++i) {
      ptx::nanosleep();
      ended = ptx::load_acquire(&p.progress->ended);
    }
    next = ended < gridDim.x ? kFinishShares : atomicAdd(&p.progress->shares, 1);
  }
#pragma unroll 1
  while (true) {
    ptx::bar_sync(kFinishBarrier, kFinishThreads);  // nobody needs what is there now
    if (thread == 0) *share = next;
    ptx::bar_sync(kFinishBarrier, kFinishThreads);
    const uint32_t first = *share;
    if (first >= kFinishShares) return;
    if (thread == 0) next = atomicAdd(&p.progress->shares, 1);
#pragma unroll 1
    for (uint32_t index = first; index < pieces; index += kAhead * kFinishShares) {
      float4 sums[kAhead];
      auto each = [&](auto visit) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const uint32_t at = index + i * kFinishShares, block = at / kPieces;
          if (at >= pieces) break;
          visit(sums[i], block / p.grad_q_blocks, block % p.grad_q_blocks, at % kPieces * kFinishThreads + thread);
        }
      };
      each([&](float4& sum, uint32_t head, int block, int item) { sum = load_sum<kDim>(p, head, block, item); });
      each([&](const float4& sum, uint32_t head, int block, int item) {
        const SumPlace place(item);
        const int row = block * kStatRows + place.row, column = place.column + place.lane % 4 * 2;
        if (column >= p.head_dim) return;
        if (row < p.seqlen_q) write_grad_q<T, 2>(p, head, row, column, &sum.x);
        if (row + 8 < p.seqlen_q) write_grad_q<T, 2>(p, head, row + 8, column, &sum.z);
      });
    }
  }
}

// Exchanges the elements of four threads side by side: thread q then has x[q] of all four.
JFA_INLINE void transpose_quad(float2 (&x)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      float2 &low = x[i], &high = x[i + distance];
      const bool upper = threadIdx.x & distance;
      const float2 sent = upper ? low : high;
      const float2 got = make_float2(__shfl_xor_sync(~0u, sent.x, distance), __shfl_xor_sync(~0u, sent.y, distance));
      (upper ? low : high) = got;
    }
  }
}

// The kernel behind the backward of packed Q. A thread makes eight elements of two rows.
template <typename T, int kDim>
__device__ __forceinline__ void finish_packed(const BackwardParams& p) {
  ptx::griddepcontrol_wait();
  if (p.schedule.state->error != PlanError::kNone) return;
  for_each_query_block(p, [&](uint32_t head, int32_t block, const Sequence& seq, uint32_t batch) {
    const int rows = seq.len_q - block * kStatRows;
    const int64_t first = seq.begin_q + block * kStatRows;
    const int64_t sum_block = static_cast<int64_t>(head) * p.grad_q_blocks + stat_block(seq.begin_o, batch) + block;
    for (int thread = threadIdx.x; thread < kStatRows * kDim / 16; thread += kSideThreads) {
      const int item = thread / 32 * 128 + thread % 32;  // the first of four, 32 apart
      const SumPlace place(item);
      if (place.row / 16 * 16 >= rows) continue;
      const float* at = p.sums + sum_block * (kStatRows * kDim) + item * 4;
      float2 x[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 sum = ptx::load_global_once(at + i * 128);
        x[0][i] = make_float2(__uint_as_float(sum.x), __uint_as_float(sum.y));
        x[1][i] = make_float2(__uint_as_float(sum.z), __uint_as_float(sum.w));
      }
      const int column = place.column + place.lane % 4 * 8;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        transpose_quad(x[half]);
        const int row = place.row + half * 8;
        if (row < rows && column < p.head_dim) write_grad_q<T, 8>(p, head, first + row, column, &x[half][0].x);
      }
    }
  });
}

}  // namespace jfa

// Instantiates both kernels for one head dimension in shared memory.
#define JFA_BACKWARD_SIDES(dim)                                                                    \
  extern "C" __global__ void __launch_bounds__(jfa::kSideThreads, dim <= 64 ? 4 : 3 - dim / 256)   \
      JFA_NAME(jfa_backward_prepare, d##dim)(const __grid_constant__ jfa::BackwardParams params) { \
    jfa::prepare_backward<jfa::JFA_DTYPE, dim / 8>(params);                                        \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(jfa::kSideThreads, 4)                               \
      JFA_NAME(jfa_backward_finish, d##dim)(const __grid_constant__ jfa::BackwardParams params) {  \
    jfa::finish_packed<jfa::JFA_DTYPE, dim>(params);                                               \
  }
