// The walk of a worker through the forward list, and what the roles of a CTA need to know of a tile.
#pragma once

#include "attention/params.cuh"
#include "ptx/warp.cuh"

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
  int32_t rows;   // rows of the tile that are queries, and those behind it to the end of the sequence
  int32_t q_row;  // ragged coordinates of the first query, also of O
  int32_t head;   // query head; in packs of heads, if they share tiles
  int32_t o_end;
  int32_t diagonal;  // key on the diagonal of query 0
  int32_t kv_head;
  int32_t kv_row;  // ragged coordinates of the first key
  int32_t kv_end;
  float* lse;  // of the first query; null if none is wanted
  int32_t q_end;
};
static_assert(sizeof(ForwardTile) == 64);

// Describes tile `index` of the list; block innermost, then head. kPack: query heads share tiles. Field by field: the
// warp that does this has few registers.
template <bool kPack>
JFA_INLINE void describe_tile(const ForwardParams& p, uint32_t index, int block_m, ForwardTile& t) {
  const ForwardSchedule& s = p.schedule;
  const uint32_t width = s.heads * s.blocks_per_entry;
  const Entry entry = s.entries[index / width];
  const uint32_t inner = index % width;
  const Sequence seq = s.sequences[entry.batch];
  const int32_t len_q = seq.len_q, len_kv = seq.len_kv;
  t.head = inner / s.blocks_per_entry;
  const int shift = kPack ? p.pack_shift : 0;
  block_m >>= shift;
  t.kv_head = (t.head << shift) / p.group;
  t.row = (entry.block + inner % s.blocks_per_entry) * block_m;
  t.rows = (len_q - t.row) << shift;
  t.diagonal = p.mask.diagonal(len_q, len_kv);
  t.begin_key = p.mask.begin_key(t.row, t.diagonal);
  t.keys = p.mask.end_key(min(t.row + block_m, len_q) - 1, t.diagonal, len_kv) - t.begin_key;
  t.kv_row = p.ragged_end - len_kv + t.begin_key;
  t.kv_end = static_cast<int32_t>(seq.begin_kv) + len_kv;
  t.q_row = p.ragged_end - len_q + t.row;
  t.q_end = static_cast<int32_t>(seq.begin_q) + len_q;
  t.o_end = static_cast<int32_t>(seq.begin_o) + len_q;
  const int64_t lse = seq.begin_o * p.lse_begin_scale + (t.head << shift) * p.lse_head_stride + t.row;
  t.lse = p.lse == nullptr ? nullptr : p.lse + lse;
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

// The same where CTAs take over the work of others: those of the grid beyond the workers stand for parts of the list,
// see ForwardSchedule::part, and kPercent of the tiles are dealt. Tiles without keys, which follow the others in the
// list, are dealt, too, between them.
template <uint32_t kPercent>
class ForwardWalk {
 public:
  __device__ explicit ForwardWalk(const ForwardSchedule& s)
      : s_(s),
        width_(s.heads * s.blocks_per_entry),
        tiles_(s.state->forward_entries * width_),
        end_(tiles_ + s.state->keyless_entries * width_),
        round_(s.workers / s.group * s.group),
        rounds_(is_alone()      ? (tiles_ + round_ - 1) / round_
                : kPercent == 0 ? 0
                                : max(tiles_ / s.workers * kPercent / 100, 1)) {}

  // Whether nothing is to be taken over.
  __device__ bool is_alone() const { return kPercent == 100 || gridDim.x == s_.workers; }

  __device__ bool has_keys(uint32_t place) const { return place < tiles_; }

  // Goes to the work of CTA `index` of the grid.
  __device__ void seek(uint32_t index) {
    index_ = index;
    turn_ = 0;
    if (index < s_.workers) {
      turns_ = 2 * max(rounds_, (end_ - tiles_ + s_.workers - 1) / s_.workers);
    } else {
      set_part(index - s_.workers, gridDim.x - s_.workers);
    }
  }

  // The place of the next tile in the list; false if there is none.
  __device__ bool next(uint32_t& place) {
    while (turn_ < turns_) {
      const uint32_t turn = turn_++, round = turn / 2, lanes = round_ / s_.group, lane = index_ / s_.group;
      if (index_ >= s_.workers) {
        place = first_ + turn * width_;
        if (place < tiles_) return true;
      } else if (turn % 2 == 1) {
        place = tiles_ + round * s_.workers + index_;
        if (place < end_) return true;
      } else if (lane < lanes && round < rounds_) {
        place = round * round_ + (round % 2 == 0 ? lane : lanes - 1 - lane) * s_.group + index_ % s_.group;
        if (place < tiles_) return true;
      }
    }
    return false;
  }

 private:
  __device__ void set_part(uint32_t part, uint32_t parts) {
    const uint32_t dealt = min(rounds_ * round_, tiles_), lines = parts / width_;
    turns_ = ((tiles_ - dealt + width_ - 1) / width_ + lines - 1) / lines;
    first_ = dealt + part / width_ * turns_ * width_ + part % width_;
  }

  const ForwardSchedule& s_;
  const uint32_t width_, tiles_, end_;  // tiles_: with keys
  const uint32_t round_, rounds_;       // tiles of a round, and rounds that are dealt
  uint32_t index_ = 0, turn_ = 0, turns_ = 0, first_ = 0;
};

constexpr int kStatRows = 64;  // queries of a block of statistics

// The first block of statistics of a sequence. Rounding down and adding one block a sequence leaves room for the last
// block of each, whatever lies between the sequences.
__device__ __forceinline__ int32_t stat_block(int64_t begin_o, uint32_t batch) {
  return static_cast<int32_t>(begin_o / kStatRows + batch);
}

constexpr int kSumColumns = 64;  // columns of dQ that a warp adds together

// Where a thread's four sums of a block of dQ lie, in floats: rows {r, r + 8} x columns {c, c + 1} with
// r = 16 warp + lane / 4 and c = 8 column + 2 (lane % 4). What a warp adds together is contiguous.
__device__ __forceinline__ int sum_offset(int column, int warp, int lane) {
  return ((column / 8 * 4 + warp) * 8 + column % 8) * 128 + lane * 4;
}

// One backward tile with a block of keys, as it lies in shared memory.
struct alignas(16) BackwardTile {
  int32_t keys;         // keys from the first of the block to the end of the sequence; 0 ends the list
  int32_t first_block;  // blocks of 64 queries that see it
  int32_t blocks;
  int32_t sum_block;  // block of dQ of query 0 and the first query head
  int32_t key;        // the first key
  int32_t kv_row;     // ragged coordinates of it
  int32_t kv_end;
  int32_t head;      // key head
  int32_t diagonal;  // key on the diagonal of query 0
  int32_t q_row;     // ragged coordinates of query 0, also of O
  int32_t q_end;
  int32_t o_end;
  int32_t stat_block;    // block of statistics of query 0, within a head
  int32_t turn;          // among the tiles of that sum; packed Q: among the blocks of keys of the sequence
  int32_t pair_rows[2];  // as kv_row, of both blocks of a pair
};
static_assert(sizeof(BackwardTile) == 64);

// Whether a tile of packed Q has all keys of its sequence; there may be `keys`, and its CTA begins with `first`. It
// then stores its sums of dQ instead of adding them to zeros.
JFA_INLINE bool makes_sums(const BackwardTile& t, int keys, int first = 0) {
  return t.key == first && t.keys <= keys - first;
}

// Whether there is such a tile for a block of queries of packed Q.
JFA_INLINE bool has_sums_made(const BackwardParams& p, const Sequence& seq, int block) {
  const int32_t diagonal = p.mask.diagonal(seq.len_q, seq.len_kv);
  return seq.len_kv > 0 && seq.len_kv <= p.tile_keys && block >= p.mask.begin_query(0, diagonal) / kStatRows &&
         block * kStatRows < p.mask.end_query(seq.len_kv - 1, diagonal, seq.len_q);
}

// A CTA's way through the backward list, heads innermost; see src/schedule/backward.rs.
class BackwardWalk {
 public:
  __device__ explicit BackwardWalk(const BackwardParams& params)
      : p_(params), s_(params.schedule), entries_(s_.state->backward_entries), slot_(blockIdx.x) {
    if (s_.lanes == 0) {
      index_ = blockIdx.x / s_.heads;
      head_ = blockIdx.x % s_.heads;
    } else {
      index_ = slot_ / s_.heads;
      head_ = slot_ % s_.heads;
    }
  }

  // Goes to a place of the list that clusters of `ctas` CTAs share; each takes as many entries of one head.
  __device__ void seek(uint32_t place, int ctas) {
    index_ = place / s_.heads * ctas;
    head_ = place % s_.heads;
  }

  // The entry of the next tile, if there is one.
  __device__ const Entry* entry() const { return s_.entries + index_; }

  // Writes the next tile of `block_n` keys, one without keys at the end; false then. Its queries are those that see
  // some of `visible` keys. Field by field: the warp that does this has few registers.
  __device__ bool next(int block_n, BackwardTile& t) { return next(block_n, t, block_n); }
  __device__ bool next(int block_n, BackwardTile& t, int visible) {
    if (index_ >= entries_) {
      t.keys = t.first_block = t.blocks = t.sum_block = 0;
      return false;
    }
    const Entry entry = s_.entries[index_];
    const Sequence& seq = s_.sequences[entry.batch];
    const int32_t len_q = seq.len_q, len_kv = seq.len_kv;
    const int32_t key = entry.block * block_n, keys = len_kv - key;
    t.key = key;
    t.keys = keys;
    t.kv_row = p_.ragged_end - keys;
    t.kv_end = static_cast<int32_t>(seq.begin_kv) + len_kv;
    const int32_t diagonal = p_.mask.diagonal(len_q, len_kv);
    t.diagonal = diagonal;
    const int32_t first_block = p_.mask.begin_query(key, diagonal) / kStatRows;
    const int32_t end = p_.mask.end_query(min(key + visible, len_kv) - 1, diagonal, len_q);
    t.first_block = first_block;
    t.blocks = (end + kStatRows - 1) / kStatRows - first_block;
    t.q_row = p_.ragged_end - len_q;
    t.q_end = static_cast<int32_t>(seq.begin_q) + len_q;
    t.o_end = static_cast<int32_t>(seq.begin_o) + len_q;
    const int32_t stats = jfa::stat_block(seq.begin_o, entry.batch);
    t.stat_block = stats;
    t.head = head_;
    const uint32_t lane = s_.lanes == 0 ? 0 : slot_ / s_.heads;
    t.turn = s_.lanes == 0 ? entry.block : index_ / s_.lanes * s_.chain + lane % s_.chain;
    t.sum_block =
        (lane / s_.chain * p_.forward.heads + head_ * p_.group) * p_.grad_q_blocks + (p_.broadcast_q ? 0 : stats);
    advance();
    return true;
  }

 private:
  __device__ void advance() {
    if (s_.lanes == 0) {
      const uint32_t place = head_ + gridDim.x;
      index_ += place / s_.heads;
      head_ = place % s_.heads;
    } else {
      index_ += s_.lanes;
      while (index_ >= entries_ && slot_ + gridDim.x < s_.heads * s_.lanes) {
        slot_ += gridDim.x;
        index_ = slot_ / s_.heads;
        head_ = slot_ % s_.heads;
      }
    }
  }

  const BackwardParams& p_;
  const BackwardSchedule& s_;
  uint32_t entries_, index_, head_, slot_;
};

}  // namespace jfa
