// What the forwards of all architectures do alike around the products of their tiles.
#pragma once

#include "attention/cta.cuh"
#include "attention/ring.cuh"
#include "attention/tiles.cuh"

namespace jfa {

// Mirrors src/cuda/forward.rs.
struct ForwardMaps {
  CUtensorMap q, k, v, o;
};

// The ring of tile descriptions, as the warp sees it that fills it.
template <typename C, typename Shared>
struct TileWriter {
  const ForwardParams& p;
  const Shared shared;
  const bool writes = true;     // in one thread
  uint32_t number = 0;          // tiles of this CTA so far
  int32_t head = -1, row = -1;  // of the tile before

  // Waits for room for a description.
  JFA_INLINE void wait() const { shared.wait(C::kTileEmpty + number % C::kTiles, number / C::kTiles % 2 ^ 1); }

  // Publishes tile `index` of the list, after a wait; the keys that it visits.
  JFA_INLINE int publish(uint32_t index) {
    int keys = 0;
    fill([&](ForwardTile& tile) {
      describe_tile<C::kPack>(p, index, C::kBlockM, tile);
      tile.new_q = !p.broadcast_q || tile.head != head || tile.row != row;
      head = tile.head;
      row = tile.row;
      keys = tile.keys;
    });
    return keys;
  }

  JFA_INLINE void end() {
    fill([](ForwardTile& tile) { tile = ForwardTile{}; });
  }

 private:
  template <typename Describe>
  JFA_INLINE void fill(Describe describe) {
    if (writes) {
      describe(shared.tile(number % C::kTiles));
      shared.arrive(C::kTileFull + number % C::kTiles);
    }
    ++number;
  }
};

// O = 0 and LSE = -inf for tile `index`, none of whose queries sees a key; by a warp.
template <typename C>
__device__ __forceinline__ void fill_keyless_tile(const ForwardParams& p, uint32_t index) {
  ForwardTile tile;
  describe_tile<C::kPack>(p, index, C::kBlockM, tile);
  const int shift = C::kPack ? p.pack_shift : 0, pack = 1 << shift, lane = threadIdx.x % 32;
  const int64_t first = static_cast<int64_t>(tile.o_end) - (tile.rows >> shift);
  const int rows = min(tile.rows, C::kBlockM);
  auto* o = static_cast<typename C::T*>(p.o) + first * p.o_row_stride + (tile.head << shift) * p.o_head_stride;
  for (int row = 0; row < rows; ++row) {
    auto* const to = o + (row >> shift) * p.o_row_stride + row % pack * p.o_head_stride;
    for (int column = 8 * lane; column < p.head_dim; column += 256) {
      *reinterpret_cast<uint4*>(to + column) = make_uint4(0, 0, 0, 0);
    }
  }
  for (int row = lane; tile.lse != nullptr && row < rows; row += 32) {
    tile.lse[row % pack * p.lse_head_stride + (row >> shift)] = -INFINITY;
  }
}

// The same for all such tiles; `worker` of `workers` warps.
template <typename C>
__device__ void fill_keyless(const ForwardParams& p, uint32_t worker, uint32_t workers) {
  const ForwardSchedule& s = p.schedule;
  const uint32_t width = s.heads * s.blocks_per_entry;
  const uint32_t begin = s.state->forward_entries * width, end = begin + s.state->keyless_entries * width;
  for (uint32_t index = begin + worker; index < end; index += workers) fill_keyless_tile<C>(p, index);
}

}  // namespace jfa
