// The walk of a worker through the forward list, and what the roles of a CTA need to know of a tile.
#pragma once

#include "attention/params.cuh"

namespace jfa {

// Tensor maps see a jagged tensor as rows that end at `ragged_end`, no less than the longest sequence, so that boxes
// are clipped at the end of a sequence: row r of a sequence of length n that ends at row e of the tensor has the
// coordinates (ragged_end - n + r, e).

// One forward tile, as it lies in shared memory.
struct alignas(16) ForwardTile {
  // Read together when a tile is looked at.
  int32_t keys;       // keys to visit; 0 ends the list
  int32_t new_q;      // 1: another Q block than the tile before
  int32_t begin_key;  // first of the keys
  int32_t row;        // first query
  // Read together when it is stored.
  int32_t rows;   // queries from `row` to the end of the sequence
  int32_t q_row;  // ragged coordinates of the first query, also of O
  int32_t head;   // query head
  int32_t o_end;
  int32_t diagonal;  // key on the diagonal of query 0
  int32_t kv_head;
  int32_t kv_row;  // ragged coordinates of the first key
  int32_t kv_end;
  float* lse;  // of the first query; null if none is wanted
  int32_t q_end;
};
static_assert(sizeof(ForwardTile) == 64);

// Tile `index` of the sorted list; block innermost, then head.
__device__ __forceinline__ ForwardTile forward_tile(const ForwardParams& p, uint32_t index, int block_m) {
  const ForwardSchedule& s = p.schedule;
  const uint32_t width = s.heads * s.blocks_per_entry;
  const Entry entry = s.entries[index / width];
  const uint32_t inner = index % width;
  const Sequence seq = s.sequences[entry.batch];
  const int32_t len_q = seq.len_q, len_kv = seq.len_kv;
  ForwardTile t;
  t.head = inner / s.blocks_per_entry;
  t.kv_head = t.head / p.group;
  t.row = (entry.block + inner % s.blocks_per_entry) * block_m;
  t.rows = len_q - t.row;
  t.diagonal = p.mask.diagonal(len_q, len_kv);
  t.begin_key = p.mask.begin_key(t.row, t.diagonal);
  t.keys = p.mask.end_key(min(t.row + block_m, len_q) - 1, t.diagonal, len_kv) - t.begin_key;
  t.kv_row = p.ragged_end - len_kv + t.begin_key;
  t.kv_end = static_cast<int32_t>(seq.begin_kv) + len_kv;
  t.q_row = p.ragged_end - len_q + t.row;
  t.q_end = static_cast<int32_t>(seq.begin_q) + len_q;
  t.o_end = static_cast<int32_t>(seq.begin_o) + len_q;
  const int64_t lse = seq.begin_o * p.lse_begin_scale + t.head * p.lse_head_stride + t.row;
  t.lse = p.lse == nullptr ? nullptr : p.lse + lse;
  return t;
}

// Calls `visit(index)` for every tile of this CTA, in its order; see ForwardSchedule::worker in
// src/schedule/forward.rs.
template <typename Visit>
__device__ __forceinline__ void walk_forward_tiles(const ForwardSchedule& s, Visit visit) {
  const uint32_t width = s.heads * s.blocks_per_entry, entries = s.state->forward_entries;
  const uint32_t shared = s.stride == 0 ? 0 : entries / s.stride;
  const uint32_t lanes = s.workers / s.group, lane = blockIdx.x / s.group, member = blockIdx.x % s.group;
  const bool other = lane == lanes;  // beyond the last lane
  const uint32_t others = s.workers % s.group;
  const uint32_t first_place = other ? member * width / others : 0;
  const uint32_t tiles = (entries - shared) * width;
  const uint32_t rounds = other ? ((member + 1) * width / others - first_place) * shared
                                : (tiles + lanes * s.group - 1) / (lanes * s.group);
  for (uint32_t round = 0; round < rounds; ++round) {
    uint32_t index;
    if (other) {
      index = (round % shared * s.stride + s.stride - 1) * width + first_place + round / shared;
    } else {
      index = (round * lanes + (round % 2 == 0 ? lane : lanes - 1 - lane)) * s.group + member;
      if (index >= tiles) continue;
      if (s.stride != 0) index += index / width / (s.stride - 1) * width;
    }
    visit(index);
  }
}

}  // namespace jfa
