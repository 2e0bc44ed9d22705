// What the K/V-stationary backwards of all architectures do alike around the products of their tiles.
#pragma once

#include "attention/cta.cuh"
#include "attention/ring.cuh"
#include "attention/tiles.cuh"
#include "ptx/sync.cuh"

namespace jfa {

// Mirrors src/cuda/backward.rs.
struct BackwardMaps {
  CUtensorMap q, k, v, grad_o, grad_k, grad_v;
};

// Zeroes the tensors in shared memory if they have columns that no copy fills; all threads.
template <typename C>
JFA_INLINE void zero_unfilled(const BackwardParams& p, uint8_t* memory) {
  if constexpr (C::kDim > 128) {
    if (p.head_dim > C::kDim - 64) return;
    for (int i = threadIdx.x; i < C::kOffsetScoreGrad / 16; i += C::kThreads) {
      reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
    }
    ptx::fence_proxy_async_shared();
  }
}

// Where a warp's rows of dK or dV go.
struct GradientRows {
  int32_t row, head, end;  // ragged coordinates
};

// Stores 64 columns from `panel` on of rows of dK or dV, or adds them to what is there; one thread. `yield`: they leave
// L2 to other lines.
JFA_INLINE void store_box(uint32_t staging, const CUtensorMap& map, int panel, int head_dim, const GradientRows& to,
                          int add, int yield = 0) {
  const bool whole = head_dim % 64 == 0;
  const int c0 = whole ? 0 : panel * 64, c2 = whole ? panel : 0;
  if (add) {
    ptx::tma_add(map, staging, c0, to.row, c2, to.head, to.end);
  } else if (yield) {
    ptx::tma_store_once(map, staging, c0, to.row, c2, to.head, to.end);
  } else {
    ptx::tma_store(map, staging, c0, to.row, c2, to.head, to.end);
  }
}

// dK = dV = 0 for the keys that no query sees; `worker` of `workers` warps.
template <typename C>
__device__ void fill_unseen(const BackwardParams& p, uint32_t worker, uint32_t workers) {
  const BackwardSchedule& s = p.schedule;
  const uint32_t lane = threadIdx.x % 32;
  auto fill = [&](const Tensor& tensor, int64_t begin, int rows, uint32_t head) {
    auto* first = static_cast<typename C::T*>(tensor.data) + begin * tensor.row_stride + head * tensor.head_stride;
    for (int row = 0; row < rows; ++row) {
      for (int column = 8 * lane; column < p.head_dim; column += 256) {
        *reinterpret_cast<uint4*>(first + row * tensor.row_stride + column) = make_uint4(0, 0, 0, 0);
      }
    }
  };
  for (uint32_t index = worker; index < s.state->unseen_entries * s.heads; index += workers) {
    const Entry entry = s.unseen[index / s.heads];
    const Sequence& seq = s.sequences[entry.batch];
    const int32_t key = entry.block * C::kBlockN, rows = min(seq.len_kv - key, C::kBlockN);
    if (!(p.accumulate & BackwardParams::kAccumulateK)) fill(p.grad_k, seq.begin_kv + key, rows, index % s.heads);
    if (!(p.accumulate & BackwardParams::kAccumulateV)) fill(p.grad_v, seq.begin_kv + key, rows, index % s.heads);
  }
}

}  // namespace jfa
