// Blocks of queries that see no key.
#pragma once

#include "attention/tiles.cuh"

namespace jfa {

// O = 0 and LSE = -inf for tile `index`, by a warp of which this is lane `lane`. T: element type; kPack: query heads
// share tiles.
template <typename T, bool kPack = false>
__device__ __forceinline__ void fill_keyless_tile(const ForwardParams& p, uint32_t index, int block_m, uint32_t lane) {
  const ForwardTile tile = forward_tile<kPack>(p, index, block_m);
  const int shift = kPack ? p.pack_shift : 0, pack = 1 << shift;
  const int64_t first = static_cast<int64_t>(tile.o_end) - (tile.rows >> shift);
  const int rows = min(tile.rows, block_m);
  auto* o = static_cast<T*>(p.o) + first * p.o_row_stride + (tile.head << shift) * p.o_head_stride;
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

}  // namespace jfa
