// The warps of the K/V-stationary backward that load and list tiles, and what the roles share.
#pragma once

#include "sm90/backward/config.h"
#include "sm90/backward/gradients.cuh"

namespace jfa::sm90 {

// Shared-memory addresses of a CTA.
template <typename C>
struct KvStationaryShared : CtaShared<C, BackwardTile> {
  using CtaShared<C, BackwardTile>::base;

  __device__ uint32_t k(int buffer) const { return base + buffer * C::kBytesKv; }
  __device__ uint32_t v() const { return base + C::kOffsetV; }
  __device__ uint32_t q(int stage) const { return base + C::kOffsetStages + stage * 2 * C::kBytesQ; }
  __device__ uint32_t grad_o(int stage) const { return q(stage) + C::kBytesQ; }
  __device__ uint32_t score_grad(int i) const { return base + C::kOffsetScoreGrad + i * C::kBytesScoreGrad; }
  __device__ uint32_t staging(int warpgroup) const { return base + C::kOffsetStaging + warpgroup * C::kBytesStaging; }
  __device__ uint32_t stats(int stage) const { return base + C::kOffsetStats + stage * C::kBytesStats; }
};

// Writes the description of every tile of this CTA, then one without keys. If places of the list are handed out, then
// no earlier than kTilesAhead tiles before their use, so that no CTA is left with tiles when others have none. In
// order, the first ones are handed out, too: nobody then waits for a CTA that has not started.
template <typename C>
__device__ void list_tiles(const BackwardParams& p, KvStationaryShared<C> shared) {
  atomicAdd(&p.progress->begun, 1);
  BackwardWalk walk(p);
  const uint32_t dealt = p.ordered ? 0 : gridDim.x;
  bool more = true;
#pragma unroll 1
  for (uint32_t number = 0; more; ++number) {
    if (p.places != nullptr && (number > 0 || dealt == 0)) {
      if (number >= C::kTilesAhead) {
        const uint32_t used = number - C::kTilesAhead;
        shared.wait(C::kTileEmpty + used % C::kTiles, used / C::kTiles % 2);
      }
      walk.seek(dealt + atomicAdd(p.places, 1), 1);
    }
    const uint32_t index = number % C::kTiles;
    shared.wait(C::kTileEmpty + index, number / C::kTiles % 2 ^ 1);
    more = walk.next(C::kBlockN, shared.tile(index));
    shared.arrive(C::kTileFull + index);
  }
}

// Loads K of a tile ahead of Q and dO of the tile before, as far as the buffers of K go.
template <typename C>
__device__ void load(const BackwardParams& p, const BackwardMaps& maps, KvStationaryShared<C> shared) {
  // Counts instead of indices and phases: registers are few.
  static_assert((C::kTiles & (C::kTiles - 1)) == 0 && (C::kStages & (C::kStages - 1)) == 0);
  uint32_t loaded = 0;                        // blocks of keys under way
  uint32_t stages = 0;                        // steps under way
  const int panels = (p.head_dim + 63) / 64;  // the others hold zeros
#pragma unroll 1
  for (uint32_t number = 0;; ++number) {
    const BackwardTile& t = shared.tile(number % C::kTiles);
    if (number == 0) shared.wait(C::kTileFull, 0);
    if (t.keys == 0) break;
    int block = 0, head = t.head * p.group;
#pragma unroll 1
    for (int steps = t.blocks * p.group, step = 0;; ++step) {
      const bool ahead = C::kKeyBuffers > 1 ? step > 0 : step == steps;
      if (loaded < number + 1 + ahead) {
        shared.wait(C::kTileFull + loaded % C::kTiles, loaded / C::kTiles % 2);
        const BackwardTile& next = shared.tile(loaded % C::kTiles);
        const uint32_t buffer = loaded % C::kKeyBuffers, full = shared.barrier(C::kKFull + buffer);
        if (next.keys != 0) {
          shared.wait(C::kKEmpty + buffer, loaded / C::kKeyBuffers % 2 ^ 1);
          ptx::mbarrier_arrive_expect_tx(full, panels * C::kPanelKv);
          load_rows<true>(shared.k(buffer), C::kPanelKv, maps.k, full, p.panel_boxes, next.kv_row, next.head,
                          next.kv_end);
          // V has one buffer: until that is free, L2 has it.
          if (p.head_dim % 64 == 0) ptx::tma_prefetch(maps.v, 0, next.kv_row, 0, next.head, next.kv_end);
        }
        ++loaded;
      }
      if (step == steps) break;
      const uint32_t i = stages % C::kStages;
      shared.wait(C::kStageEmpty + i, stages / C::kStages % 2 ^ 1);
      ++stages;
      const int32_t row = t.q_row + (t.first_block + block) * C::kBlockM;
      shared.expect(C::kQFull + i, panels * C::kPanelQ);
      load_rows(shared.q(i), C::kPanelQ, maps.q, shared.barrier(C::kQFull + i), p.panel_boxes, row, head, t.q_end);
      if (step == 0) {
        shared.wait(C::kVEmpty, number % 2 ^ 1);
        shared.expect(C::kVFull, panels * C::kPanelKv);
        load_rows<true>(shared.v(), C::kPanelKv, maps.v, shared.barrier(C::kVFull), p.panel_boxes, t.kv_row, t.head,
                        t.kv_end);
      }
      shared.expect(C::kGradOFull + i, panels * C::kPanelQ + C::kBytesStats);
      load_rows(shared.grad_o(i), C::kPanelQ, maps.grad_o, shared.barrier(C::kGradOFull + i), p.panel_boxes, row, head,
                t.o_end);
      const int64_t stats = static_cast<int64_t>(head) * p.stat_blocks + t.stat_block + t.first_block + block;
      ptx::bulk_load(shared.stats(i), p.stats + stats * 2 * kStatRows, C::kBytesStats,
                     shared.barrier(C::kGradOFull + i));
      if (++block == t.blocks) {
        block = 0;
        ++head;
      }
    }
    shared.arrive(C::kTileEmpty + number % C::kTiles);
  }
}

}  // namespace jfa::sm90
