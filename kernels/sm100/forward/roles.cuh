// The single warps of the Blackwell forward but for the one that multiplies: list tiles, load, store.
#pragma once

#include "attention/tile_ring.cuh"
#include "forward/tiles.cuh"
#include "ptx/clc.cuh"
#include "ptx/sync.cuh"
#include "sm100/forward/config.h"

namespace jfa::sm100 {

template <typename C>
using ForwardTiles = Tiles<C, ForwardShared<C>>;

// How the blocks of a tile are spread over the groups: each group has queries of its own, or, where there are too few,
// every second block of keys.
template <typename C>
struct Spread {
  int blocks;  // of keys
  bool by_keys;
  int groups;

  JFA_INLINE explicit Spread(const ForwardTile& tile)
      : blocks((tile.keys + C::kBlockN - 1) / C::kBlockN),
        by_keys(C::kSwitches.split_keys && C::kGroups == 2 && tile.rows <= C::kRows && blocks > 1),
        groups(C::kGroups == 2 && (tile.rows > C::kRows || by_keys) ? 2 : 1) {}

  // Blocks of a group.
  JFA_INLINE int count(int group) const { return group >= groups ? 0 : by_keys ? (blocks + 1 - group) / 2 : blocks; }

  // The first block of a group, the last of its keys.
  JFA_INLINE int block(int group) const { return blocks - 1 - (by_keys ? group : 0); }

  // First query of a group.
  JFA_INLINE int row(int group) const { return by_keys ? 0 : group * C::kRows; }
};

// A row that has seen no key yet keeps the maximum -inf, and exponentials relative to 0.
template <typename C>
JFA_INLINE float reference(float max) {
  return C::kMask && max == -INFINITY ? 0 : max;
}

// Describes the tiles of this CTA, then one without keys, and fills rows that see no key; a warp.
template <typename C>
__device__ __forceinline__ void list_tiles(const ForwardParams& p, ForwardShared<C> shared) {
  const uint32_t lane = threadIdx.x % 32;
  ForwardWalk<C::kStaticPercent> walk(p.schedule);
  TileWriter<C, ForwardShared<C>> tiles{p, shared, lane == 0};
  Ring<1> response;
  for (uint32_t index = blockIdx.x; index != ptx::kClcNone;) {
    const uint32_t before = tiles.number;
    walk.seek(index);
    for (uint32_t place; walk.next(place);) {
      if (!walk.has_keys(place)) {
        fill_keyless_tile<C>(p, place);
        continue;
      }
      tiles.wait();
      tiles.publish(place);
    }
    if (walk.is_alone()) break;
    // Asks for no more before the load warp has begun with the last tile, so that nobody hoards.
    if (const uint32_t last = tiles.number - 1; tiles.number != before) {
      shared.wait(C::kTileLoaded + last % C::kTiles, last / C::kTiles % 2);
    }
    __syncwarp();
    if (lane == 0) {
      ptx::fence_proxy_async_shared();
      shared.expect(C::kResponse, ptx::kClcResponseBytes);
      ptx::clc_try_cancel<false>(shared.response(), shared.barrier(C::kResponse));
    }
    shared.wait(C::kResponse, response.phase);
    response.advance();
    index = ptx::clc_query(shared.response());
  }
  tiles.wait();
  tiles.end();
}

// Fills the ring in the order K0 V0 K1 V1 ..., or K0 K1 V0 K2 V1 ... where groups differ by keys; across tiles, last
// block of a tile first; one thread.
template <typename C>
__device__ __forceinline__ void load(const ForwardParams& p, const ForwardMaps& maps, ForwardShared<C> shared) {
  ForwardTiles<C> tiles{shared};
  Ring<C::kSlots> slot;
  Ring<C::kTiles> before;  // the tile before
  auto load_block = [&](const CUtensorMap& map, uint32_t dst, int panel, int full, int bytes, int32_t row, int32_t head,
                        int32_t end) {
    shared.expect(full, bytes);
    load_rows(dst, panel, map, shared.barrier(full), p.panel_boxes, row, head, end);
  };
  auto load_slot = [&](const CUtensorMap& map, int32_t row, int32_t head, int32_t end) {
    shared.wait(C::kSlotEmpty + slot.index, slot.phase ^ 1);
    load_block(map, shared.slot(slot.index), C::kPanelKv, C::kSlotFull + slot.index, C::kBytesSlot, row, head, end);
    slot.advance();
  };
  for (bool first = true;; first = false) {
    const ForwardTile tile = tiles.wait();
    shared.arrive(C::kTileLoaded + tiles.ring.index);
    tiles.release();
    if (tile.keys == 0) break;
    auto load_q = [&](int group) {
      load_block(maps.q, shared.q(group), C::kPanelQ, C::kQFull + group, C::kBytesQ, tile.q_row + group * C::kRows,
                 tile.head, tile.q_end);
    };
    if (!first) {
      if (tile.new_q) shared.wait(C::kQEmpty + before.index, before.phase);
      before.advance();
    }
    if (tile.new_q) load_q(0);
    const Spread<C> spread(tile);
    for (int i = 0, behind = spread.by_keys; i < spread.blocks + behind; ++i) {
      const int32_t row = tile.kv_row + (spread.blocks - 1 - i) * C::kBlockN;
      if (i < spread.blocks) load_slot(maps.k, row, tile.kv_head, tile.kv_end);
      if (i == 0 && tile.new_q && tile.rows > C::kRows && C::kGroups == 2) load_q(1);
      if (i >= behind) load_slot(maps.v, row + behind * C::kBlockN, tile.kv_head, tile.kv_end);
    }
  }
}

// Copies what the correction has put into shared memory to O; one thread.
template <typename C>
__device__ __forceinline__ void store(const ForwardParams& p, const CUtensorMap& map_o, ForwardShared<C> shared) {
  ForwardTiles<C> tiles{shared};
  Ring<1> staging[C::kGroups];
  while (true) {
    const ForwardTile tile = tiles.wait();
    tiles.release();
    if (tile.keys == 0) break;
#pragma unroll
    for (int group = 0; group < C::kGroups; ++group) {
      if (group > 0 && tile.rows <= C::kRows) break;
      shared.wait(C::kStagingFull + group, staging[group].phase);
      staging[group].advance();
      for (int box = 0; box < p.panel_boxes; ++box) {
        ptx::tma_store(map_o, shared.o(group) + box * C::kPanelQ, box * 64, tile.q_row + group * C::kRows, 0, tile.head,
                       tile.o_end);
      }
      ptx::bulk_commit_group();
      ptx::bulk_wait_group_read<0>();
      shared.arrive(C::kStagingEmpty + group);
    }
  }
  ptx::bulk_wait_group<0>();
}

}  // namespace jfa::sm100
