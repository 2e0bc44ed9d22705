// The kernel behind the backward: dQ from its sums. Runs on every architecture.
#pragma once

#include "backward/prepare.cuh"
#include "ptx/math.cuh"

namespace jfa {

// Four elements of dQ from the sums at place `item` of a block of 64 queries; `first` is its first row in dQ, `rows` of
// its rows exist.
template <typename T, int kDim>
__device__ __forceinline__ void finish_block(const BackwardParams& p, uint32_t head, int64_t sum_block, int64_t first,
                                             int rows, int item) {
  constexpr int kFloats = kStatRows * kDim;
  const int64_t stride = static_cast<int64_t>(p.forward.heads) * p.grad_q_blocks * kFloats;
  const float* at = p.sums + (static_cast<int64_t>(head) * p.grad_q_blocks + sum_block) * kFloats + item * 4;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int part = 0; part < p.parts; ++part) {
    const float4 x = *reinterpret_cast<const float4*>(at + part * stride);
    sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
  }
  // The inverse of sum_offset().
  const int lane = item % 32, column = (item / 1024 * 8 + item / 32 % 8) * 8 + lane % 4 * 2;
  const int row = item / 256 % 4 * 16 + lane / 4;
  auto write = [&](int r, float a, float b) {
    if (r >= rows || column >= p.head_dim) return;
    a *= p.scale;
    b *= p.scale;
    const int64_t offset = (first + r) * p.grad_q.row_stride + head * p.grad_q.head_stride + column;
    const bool add = p.accumulate & BackwardParams::kAccumulateQ;
    if (p.grad_q_fp32) {
      auto* to = reinterpret_cast<float2*>(static_cast<float*>(p.grad_q.data) + offset);
      const float2 old = add ? *to : make_float2(0, 0);
      *to = make_float2(old.x + a, old.y + b);
    } else {
      auto* to = reinterpret_cast<uint32_t*>(static_cast<T*>(p.grad_q.data) + offset);
      const float2 old = add ? unpack<T>(*to) : make_float2(0, 0);
      *to = ptx::pack<T>(old.x + a, old.y + b);
    }
  };
  write(row, sum.x, sum.y);
  write(row + 8, sum.z, sum.w);
}

template <typename T, int kDim>
__device__ __forceinline__ void finish_backward(const BackwardParams& p) {
  ptx::griddepcontrol_wait();
  if (p.schedule.state->error != PlanError::kNone) return;
  constexpr int kItems = kStatRows * kDim / 4;  // threads of a block of queries
  if (p.broadcast_q) {
    constexpr int kShares = kItems / kSideThreads;
    const uint32_t blocks = p.forward.heads * p.grad_q_blocks;
    for (uint32_t index = blockIdx.x; index < blocks * kShares; index += gridDim.x) {
      const uint32_t head = index / kShares / p.grad_q_blocks, block = index / kShares % p.grad_q_blocks;
      finish_block<T, kDim>(p, head, block, block * kStatRows, p.seqlen_q - block * kStatRows,
                            index % kShares * kSideThreads + threadIdx.x);
    }
    return;
  }
  for_each_query_block(p, [&](uint32_t head, int32_t block, const Sequence& seq, uint32_t batch) {
    const int64_t first = seq.begin_q + block * kStatRows;
    for (int item = threadIdx.x; item < kItems; item += kSideThreads) {
      finish_block<T, kDim>(p, head, stat_block(seq.begin_o, batch) + block, first, seq.len_q - block * kStatRows,
                            item);
    }
  });
}

}  // namespace jfa

// CTAs of the kernel after the backward on a multiprocessor; 0: the compiler chooses. Its choice for Blackwell spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define JFA_FINISH_CTAS 4
#else
#define JFA_FINISH_CTAS 0
#endif

// Instantiates both kernels for one head dimension in shared memory.
#define JFA_BACKWARD_SIDES(type, suffix, dim)                                                      \
  extern "C" __global__ void __launch_bounds__(jfa::kSideThreads)                                  \
      jfa_backward_prepare_##suffix##_d##dim(const __grid_constant__ jfa::BackwardParams params) { \
    jfa::prepare_backward<type, dim / 8>(params);                                                  \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(jfa::kSideThreads, JFA_FINISH_CTAS)                 \
      jfa_backward_finish_##suffix##_d##dim(const __grid_constant__ jfa::BackwardParams params) {  \
    jfa::finish_backward<type, dim>(params);                                                       \
  }
