// The warps of the K/V-stationary backward that do not multiply: one loads, three zero the gradients of unseen keys.
#pragma once

#include "attention/tiles.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "sm90/backward/config.h"
#include "sm90/backward/gradients.cuh"
#include "attention/ring.cuh"

namespace jfa::sm90 {

// What the first lane of a warp that multiplies has still to do; in shared memory, since registers are scarce.
struct alignas(16) KvStationaryPending {
  float* sum;          // where the sum in the staging buffer goes; null if there is none
  uint32_t* turn;      // counter of the sums that were added there
  uint32_t before;     // how many come first
  uint32_t signals;    // 1: the sum was added, but not yet counted
  int64_t first;       // block of dQ of the first head and query of the tile, in the partial sum
  GradientRows to;     // of the tile before
  uint32_t padding;
};
static_assert(sizeof(KvStationaryPending) == 48);

// Shared-memory addresses of a CTA.
template <typename C>
struct KvStationaryShared {
  uint32_t base;

  __device__ uint32_t k(int buffer) const { return base + buffer * C::kBytesKv; }
  __device__ uint32_t v() const { return base + C::kOffsetV; }
  __device__ uint32_t q(int stage) const { return base + C::kOffsetStages + stage * 2 * C::kBytesQ; }
  __device__ uint32_t grad_o(int stage) const { return q(stage) + C::kBytesQ; }
  __device__ uint32_t score_grad(int i) const { return base + C::kOffsetScoreGrad + i * C::kBytesScoreGrad; }
  __device__ uint32_t staging(int warp) const { return base + C::kOffsetStaging + warp * C::kBytesStaging; }
  __device__ uint32_t stats(int stage) const { return base + C::kOffsetStats + stage * C::kBytesStats; }
  __device__ BackwardTile& tile(int i) const {
    return *static_cast<BackwardTile*>(
        __cvta_shared_to_generic(base + C::kOffsetTiles + i * static_cast<int>(sizeof(BackwardTile))));
  }
  __device__ KvStationaryPending& pending(int warp) const {
    const uint32_t address = base + C::kOffsetPending + warp * sizeof(KvStationaryPending);
    return *static_cast<KvStationaryPending*>(__cvta_shared_to_generic(address));
  }
  __device__ uint32_t tile_full(int i) const { return barrier(i); }
  __device__ uint32_t tile_empty(int i) const { return barrier(C::kTiles + i); }
  __device__ uint32_t k_full(int i) const { return barrier(2 * C::kTiles + i); }
  __device__ uint32_t k_empty(int i) const { return k_full(C::kKeyBuffers + i); }
  __device__ uint32_t v_full() const { return k_full(2 * C::kKeyBuffers); }
  __device__ uint32_t v_empty() const { return k_full(2 * C::kKeyBuffers + 1); }
  __device__ uint32_t q_full(int i) const { return k_full(2 * C::kKeyBuffers + 2 + i); }
  __device__ uint32_t grad_o_full(int i) const { return q_full(C::kStages + i); }
  __device__ uint32_t stage_empty(int i) const { return q_full(2 * C::kStages + i); }

 private:
  __device__ uint32_t barrier(int i) const { return base + C::kOffsetBarriers + 8 * i; }
};

struct KvStationaryMaps {
  CUtensorMap q, k, v, grad_o, grad_k, grad_v;
};

// Writes the description of every tile of this CTA, then one without keys.
template <typename C>
__device__ void list_tiles(const BackwardParams& p, KvStationaryShared<C> shared) {
  Ring<C::kTiles> ring;
  BackwardWalk walk(p);
  bool more = true;
  while (more) {
    const BackwardTile tile = walk.next(C::kBlockN);
    more = tile.keys != 0;
    ptx::mbarrier_wait(shared.tile_empty(ring.index), ring.phase ^ 1);
    shared.tile(ring.index) = tile;
    ptx::mbarrier_arrive(shared.tile_full(ring.index));
    ring.advance();
  }
}

// Loads K of a tile ahead of Q and dO of the tile before, as far as the buffers of K go.
template <typename C>
__device__ void load(const BackwardParams& p, const KvStationaryMaps& maps, KvStationaryShared<C> shared) {
  Ring<C::kTiles> next;
  Ring<C::kKeyBuffers> k;
  Ring<C::kStages> stage;
  uint32_t v_phase = 0;
  const int panels = (p.head_dim + 63) / 64;  // the others hold zeros
  auto load_keys = [&] {
    ptx::mbarrier_wait(shared.tile_full(next.index), next.phase);
    const BackwardTile& t = shared.tile(next.index);
    next.advance();
    if (t.keys == 0) return;
    ptx::mbarrier_wait(shared.k_empty(k.index), k.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(shared.k_full(k.index), panels * C::kPanelKv);
    load_rows(shared.k(k.index), C::kPanelKv, maps.k, shared.k_full(k.index), p.head_dim, t.kv_row, t.head, t.kv_end);
    k.advance();
  };
  load_keys();
  for (int index = 0;; index = (index + 1) % C::kTiles) {
    const BackwardTile& t = shared.tile(index);
    if (t.keys == 0) break;
    const int steps = t.blocks * p.group;
    int block = 0, head = t.head * p.group;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int i = stage.index;
      ptx::mbarrier_wait(shared.stage_empty(i), stage.phase ^ 1);
      const int32_t row = t.q_row + (t.first_block + block) * C::kBlockM;
      ptx::mbarrier_arrive_expect_tx(shared.q_full(i), panels * C::kPanelQ);
      load_rows(shared.q(i), C::kPanelQ, maps.q, shared.q_full(i), p.head_dim, row, head, t.q_end);
      if (step == 0) {
        ptx::mbarrier_wait(shared.v_empty(), v_phase ^ 1);
        v_phase ^= 1;
        ptx::mbarrier_arrive_expect_tx(shared.v_full(), panels * C::kPanelKv);
        load_rows(shared.v(), C::kPanelKv, maps.v, shared.v_full(), p.head_dim, t.kv_row, t.head, t.kv_end);
      }
      const int64_t stats = static_cast<int64_t>(head) * p.stat_blocks + t.stat_block + t.first_block + block;
      ptx::mbarrier_arrive_expect_tx(shared.grad_o_full(i), panels * C::kPanelQ + C::kBytesStats);
      load_rows(shared.grad_o(i), C::kPanelQ, maps.grad_o, shared.grad_o_full(i), p.head_dim, row, head, t.o_end);
      ptx::bulk_load(shared.stats(i), p.stats + stats * 2 * kStatRows, C::kBytesStats, shared.grad_o_full(i));
      stage.advance();
      if (C::kKeyBuffers > 1 && step == min(1, steps - 1)) load_keys();
      if (++block == t.blocks) {
        block = 0;
        ++head;
      }
    }
    if (C::kKeyBuffers == 1) load_keys();
    ptx::mbarrier_arrive(shared.tile_empty(index));
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

}  // namespace jfa::sm90
