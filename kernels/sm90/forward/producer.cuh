// The warps of the Hopper forward that do not multiply: one lists tiles, one loads, two fill keyless rows.
#pragma once

#include "attention/tile_ring.cuh"
#include "forward/tiles.cuh"
#include "sm90/forward/config.h"

namespace jfa::sm90 {

// Shared-memory addresses of a CTA.
template <typename C>
struct ForwardShared : CtaShared<C, ForwardTile> {
  using CtaShared<C, ForwardTile>::base;

  __device__ uint32_t q(int buffer) const { return base + buffer * C::kBytesQ; }
  __device__ uint32_t o(int warp) const { return base + C::kOffsetO + warp * C::kPanels * C::kPanelO; }
  __device__ uint32_t slot(int i) const { return base + C::kOffsetRing + i * C::kBytesSlot; }
};

// Writes the description of every tile of this CTA, then one without keys. With a mask tiles of a sequence differ, and
// a counter hands them out: the one behind a long tile when that has begun, so that nobody hoards, those behind short
// ones as soon as there is room, so that nobody waits for them. Else tiles are dealt.
template <typename C>
__device__ void list_tiles(const ForwardParams& p, ForwardShared<C> shared) {
  TileWriter<C, ForwardShared<C>> tiles{p, shared};
  if constexpr (C::kMask) {
    const ForwardSchedule& s = p.schedule;
    const uint32_t end = s.state->forward_entries * s.heads * s.blocks_per_entry;
    for (uint32_t place = blockIdx.x; place < end;) {
      const bool is_long = tiles.publish(place) > C::kLongTile;
      if (const uint32_t before = tiles.number - 2; is_long && tiles.number > 1) {
        shared.wait(C::kTileEmpty + before % C::kTiles, before / C::kTiles % 2);
      }
      tiles.wait();
      place = p.places == nullptr ? end : gridDim.x + atomicAdd(p.places, 1);
    }
  } else {
    walk_forward_tiles(p.schedule, [&](uint32_t index) {
      tiles.wait();
      tiles.publish(index);
    });
    tiles.wait();
  }
  tiles.end();
}

// Fills the ring in the order K0 | K1 V0 | K2 V1 | ..., across tiles, last block of a tile first.
template <typename C>
__device__ void load(const ForwardParams& p, const ForwardMaps& maps, ForwardShared<C> shared) {
  Tiles<C, ForwardShared<C>> tiles{shared};
  Ring<C::kSlots> slot;
  Ring<C::kQBuffers> q;
  auto load_block = [&](const CUtensorMap& map, int32_t row, int32_t head, int32_t end) {
    shared.wait(C::kSlotEmpty + slot.index, slot.phase ^ 1);
    shared.expect(C::kSlotFull + slot.index, C::kBytesSlot);
    load_rows(shared.slot(slot.index), C::kPanelKv, map, shared.barrier(C::kSlotFull + slot.index), p.panel_boxes, row,
              head, end);
    slot.advance();
  };
  int32_t pending_row = -1, pending_head = 0, pending_end = 0;
  while (true) {
    const ForwardTile tile = tiles.wait();
    tiles.release();
    if (tile.keys == 0) break;
    if (tile.new_q) {
      shared.wait(C::kQEmpty + q.index, q.phase ^ 1);
      shared.expect(C::kQFull + q.index, C::kBytesQ);
      for (int box = 0; box < (C::kPack ? C::kPanels : p.panel_boxes); ++box) {
        ptx::tma_load(shared.q(q.index) + box * C::kPanelQ, maps.q, shared.barrier(C::kQFull + q.index), box * 64,
                      C::kPack ? 0 : tile.q_row, C::kPack ? tile.q_row : 0, tile.head, tile.q_end);
      }
      q.advance();
    }
    for (int32_t block = (tile.keys - 1) / C::kBlockN; block >= 0; --block) {
      const int32_t row = tile.kv_row + block * C::kBlockN;
      load_block(maps.k, row, tile.kv_head, tile.kv_end);
      if (pending_row >= 0) load_block(maps.v, pending_row, pending_head, pending_end);
      pending_row = row;
      pending_head = tile.kv_head;
      pending_end = tile.kv_end;
    }
  }
  if (pending_row >= 0) load_block(maps.v, pending_row, pending_head, pending_end);
}

}  // namespace jfa::sm90
