// What the K/V-stationary backwards of all architectures do alike around the products of their tiles.
#pragma once

#include "attention/ring.cuh"
#include "attention/tiles.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sync.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

namespace jfa {

// Mirrors src/cuda/backward.rs.
struct BackwardMaps {
  CUtensorMap q, k, v, grad_o, grad_k, grad_v;
};

// Loads all rows of a block, one box if head_dim is whole panels, else one a panel. kOnce: nobody reads them again.
template <bool kOnce = false>
__device__ __forceinline__ void load_rows(uint32_t dst, int panel_bytes, const CUtensorMap& map, uint32_t barrier,
                                          int32_t head_dim, int32_t row, int32_t head, int32_t end) {
  const int boxes = head_dim % 64 == 0 ? 1 : (head_dim + 63) / 64;
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    if constexpr (kOnce) {
      ptx::tma_load_once(dst + box * panel_bytes, map, barrier, box * 64, row, 0, head, end);
    } else {
      ptx::tma_load(dst + box * panel_bytes, map, barrier, box * 64, row, 0, head, end);
    }
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
