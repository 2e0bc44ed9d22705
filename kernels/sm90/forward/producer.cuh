// The warps of the Hopper forward that do not multiply: one lists tiles, one loads, two fill keyless rows.
#pragma once

#include "attention/keyless.cuh"
#include "attention/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "sm90/forward/config.h"

namespace jfa::sm90 {

// Shared-memory addresses of a CTA.
template <typename C>
struct ForwardShared {
  uint32_t base;

  __device__ uint32_t q(int buffer) const { return base + buffer * C::kBytesQ; }
  __device__ uint32_t o(int warp) const { return base + C::kOffsetO + warp * C::kPanels * C::kPanelO; }
  __device__ uint32_t slot(int i) const { return base + C::kOffsetRing + i * C::kBytesSlot; }
  __device__ uint32_t tile(int i) const { return base + C::kOffsetTiles + i * sizeof(ForwardTile); }
  __device__ uint32_t slot_full(int i) const { return barrier(i); }
  __device__ uint32_t slot_empty(int i) const { return barrier(C::kSlots + i); }
  __device__ uint32_t tile_full(int i) const { return barrier(2 * C::kSlots + i); }
  __device__ uint32_t tile_empty(int i) const { return barrier(2 * C::kSlots + C::kTiles + i); }
  __device__ uint32_t q_full(int i) const { return barrier(2 * (C::kSlots + C::kTiles) + i); }
  __device__ uint32_t q_empty(int i) const { return barrier(2 * (C::kSlots + C::kTiles) + C::kQBuffers + i); }

 private:
  __device__ uint32_t barrier(int i) const { return base + C::kOffsetBarriers + 8 * i; }
};

// Writes the description of every tile of this CTA, then one without keys.
template <typename C>
__device__ void list_tiles(const ForwardParams& p, ForwardShared<C> shared, ForwardTile* tiles) {
  Ring<C::kTiles> ring;
  int32_t head = -1, row = -1;
  auto publish = [&](const ForwardTile& tile) {
    ptx::mbarrier_wait(shared.tile_empty(ring.index), ring.phase ^ 1);
    tiles[ring.index] = tile;
    ptx::mbarrier_arrive(shared.tile_full(ring.index));
    ring.advance();
  };
  walk_forward_tiles(p.schedule, [&](uint32_t index) {
    ForwardTile tile = forward_tile<C::kPack>(p, index, C::kBlockM);
    tile.new_q = !p.broadcast_q || tile.head != head || tile.row != row;
    head = tile.head;
    row = tile.row;
    publish(tile);
  });
  publish(ForwardTile{});
}

// Fills the ring in the order K0 | K1 V0 | K2 V1 | ..., across tiles, last block of a tile first.
template <typename C>
__device__ void load(const ForwardParams& p, const CUtensorMap& map_q, const CUtensorMap& map_k,
                     const CUtensorMap& map_v, ForwardShared<C> shared, const ForwardTile* tiles) {
  Ring<C::kTiles> tile_ring;
  Ring<C::kSlots> slot;
  Ring<C::kQBuffers> q;
  auto load_block = [&](const CUtensorMap& map, int32_t row, int32_t head, int32_t end) {
    ptx::mbarrier_wait(shared.slot_empty(slot.index), slot.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(shared.slot_full(slot.index), C::kBytesSlot);
    for (int box = 0; box < p.panel_boxes; ++box) {
      ptx::tma_load(shared.slot(slot.index) + box * C::kPanelKv, map, shared.slot_full(slot.index), box * 64, row, 0,
                    head, end);
    }
    slot.advance();
  };
  int32_t pending_row = -1, pending_head = 0, pending_end = 0;
  while (true) {
    ptx::mbarrier_wait(shared.tile_full(tile_ring.index), tile_ring.phase);
    const ForwardTile tile = tiles[tile_ring.index];
    ptx::mbarrier_arrive(shared.tile_empty(tile_ring.index));
    tile_ring.advance();
    if (tile.keys == 0) break;
    if (tile.new_q) {
      ptx::mbarrier_wait(shared.q_empty(q.index), q.phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(shared.q_full(q.index), C::kBytesQ);
      for (int box = 0; box < (C::kPack ? C::kPanels : p.panel_boxes); ++box) {
        ptx::tma_load(shared.q(q.index) + box * C::kPanelQ, map_q, shared.q_full(q.index), box * 64,
                      C::kPack ? 0 : tile.q_row, C::kPack ? tile.q_row : 0, tile.head, tile.q_end);
      }
      q.advance();
    }
    for (int32_t block = (tile.keys - 1) / C::kBlockN; block >= 0; --block) {
      const int32_t row = tile.kv_row + block * C::kBlockN;
      load_block(map_k, row, tile.kv_head, tile.kv_end);
      if (pending_row >= 0) load_block(map_v, pending_row, pending_head, pending_end);
      pending_row = row;
      pending_head = tile.kv_head;
      pending_end = tile.kv_end;
    }
  }
  if (pending_row >= 0) load_block(map_v, pending_row, pending_head, pending_end);
}

// O = 0 and LSE = -inf for the blocks of queries that see no key; `worker` of `workers` warps.
template <typename C>
__device__ void fill_keyless(const ForwardParams& p, uint32_t worker, uint32_t workers) {
  const ForwardSchedule& s = p.schedule;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t width = s.heads * s.blocks_per_entry;
  const uint32_t begin = s.state->forward_entries * width, end = begin + s.state->keyless_entries * width;
  for (uint32_t index = begin + worker; index < end; index += workers) {
    fill_keyless_tile<typename C::T, C::kPack>(p, index, C::kBlockM, lane);
  }
}

}  // namespace jfa::sm90
