// Blocks of queries that see no key.
#pragma once

#include "attention/tiles.cuh"

namespace jfa {

// O = 0 and LSE = -inf for tile `index`, by a warp of which this is lane `lane`; T: element type.
template <typename T>
__device__ __forceinline__ void fill_keyless_tile(const ForwardParams& p, uint32_t index, int block_m, uint32_t lane) {
  const ForwardTile tile = forward_tile(p, index, block_m);
  const int64_t first = static_cast<int64_t>(tile.o_end) - tile.rows;
  const int rows = min(tile.rows, block_m);
  auto* o = static_cast<T*>(p.o) + first * p.o_row_stride + tile.head * p.o_head_stride;
  for (int row = 0; row < rows; ++row) {
    for (int column = 8 * lane; column < p.head_dim; column += 256) {
      *reinterpret_cast<uint4*>(o + row * p.o_row_stride + column) = make_uint4(0, 0, 0, 0);
    }
  }
  for (int row = lane; tile.lse != nullptr && row < rows; row += 32) tile.lse[row] = -INFINITY;
}

}  // namespace jfa
