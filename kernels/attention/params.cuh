// What the host hands to the kernels. Mirrors src/cuda/params.rs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jfa {

// Where one sequence of a batch lies; rows.
struct alignas(16) Sequence {
  int64_t begin_q;   // first row of Q; 0 for broadcast Q
  int64_t begin_o;   // first row of O and dO
  int64_t begin_kv;  // first row of K and V
  int32_t len_q;
  int32_t len_kv;
};

// A block of rows of one sequence, before it is spread over the heads.
struct Entry {
  uint32_t batch;
  uint32_t block;
};

// What is wrong with the offsets, in the order of the checks.
enum class PlanError : uint32_t {
  kNone,
  kKvNegative,
  kKvDecreasing,
  kKvBeyondTotal,
  kKvLength,
  kKvTooLong,
  kQNegative,
  kQDecreasing,
  kQBeyondTotal,
  kQTooLong,
};

// What the planner found; the lists are empty if there is an error.
struct PlanState {
  uint32_t forward_entries;   // blocks of queries that see keys
  uint32_t keyless_entries;   // blocks of queries that see none; they follow in the same list
  uint32_t backward_entries;  // blocks of keys that are seen, with sentinels
  uint32_t unseen_entries;    // blocks of keys that no query sees
  PlanError error;
  uint32_t reserved;
  int64_t error_index;  // index in the offending array
  int64_t error_value;  // the value there
  int64_t error_bound;  // what it breaks
};

// The order of the forward; see src/schedule/forward.rs.
struct ForwardSchedule {
  const PlanState* state;     // [1]
  const Sequence* sequences;  // [batch]
  const Entry* entries;       // [forward_entries + keyless_entries], longest sequences first
  uint32_t heads;             // query heads
  uint32_t blocks_per_entry;  // query blocks of an entry
  uint32_t workers;           // CTAs that get tiles
  uint32_t group;             // adjacent CTAs that move together, one lane
  uint32_t stride;            // every stride-th entry goes to the CTAs beyond the last lane; 0 if there are none
  uint32_t block_m;           // queries of a block
};

// A sliding window; see src/problem.rs. Unbounded sides are kUnbounded.
struct Mask {
  static constexpr int32_t kUnbounded = 1 << 30;
  int32_t left;
  int32_t right;
  int32_t bottom_right;  // 1: the diagonal ends at the last key

  // Whether one of `rows` rows, the first of which has key `on` on its diagonal, misses one of `keys` keys from `key`
  // on.
  __device__ bool cuts(int32_t on, int32_t rows, int32_t key, int32_t keys) const {
    return key < on + rows - 1 - left || key + keys - 1 > on + right;
  }

  __device__ int32_t diagonal(int32_t len_q, int32_t len_kv) const { return bottom_right ? len_kv - len_q : 0; }

  // The first key that a query sees if `row` is the first of its block.
  __device__ int32_t begin_key(int32_t row, int32_t diagonal) const {
    return left == kUnbounded ? 0 : max(row + diagonal - left, 0);
  }

  // The end of the keys that a block of queries sees if `row` is its last.
  __device__ int32_t end_key(int32_t row, int32_t diagonal, int32_t len_kv) const {
    return right == kUnbounded ? len_kv : min(row + 1 + diagonal + right, len_kv);
  }

  // The first query that sees a block of keys if `key` is its first.
  __device__ int32_t begin_query(int32_t key, int32_t diagonal) const {
    return right == kUnbounded ? 0 : max(key - diagonal - right, 0);
  }

  // The end of the queries that see a block of keys if `key` is its last.
  __device__ int32_t end_query(int32_t key, int32_t diagonal, int32_t len_q) const {
    return left == kUnbounded ? len_q : min(key + 1 - diagonal + left, len_q);
  }
};

struct PlanParams {
  const void* q_offsets;   // [batch + 1]; null for broadcast Q
  const void* kv_offsets;  // [batch + 1]
  const void* kv_lengths;  // [batch] or null
  int32_t wide;            // 1: offsets and lengths are 64-bit
  int32_t batch;
  int64_t total_q;
  int64_t total_kv;
  int32_t max_seqlen_q;  // the length of a broadcast Q
  int32_t max_seqlen_kv;
  Mask mask;
  int32_t block_m;           // queries of a forward tile
  int32_t blocks_per_entry;  // query blocks of a forward entry
  int32_t class_keys;        // keys of a cost class
  int32_t block_n;           // keys of a backward tile
  int32_t cluster;           // CTAs of a backward cluster
  PlanState* state;          // [1]
  Sequence* sequences;       // [batch]
  Entry* forward;            // [forward_entries + keyless_entries]
  Entry* backward;           // [backward_entries]
  Entry* unseen;             // [unseen_entries]
};

struct ForwardParams {
  ForwardSchedule schedule;
  Mask mask;
  float scale;              // of the scores
  float scale_log2;         // |scale| * log2(e)
  int32_t group;            // query heads of a key head
  int32_t head_dim;         // elements, before padding to whole panels
  int32_t panel_boxes;      // boxes of a block of rows: 1 if head_dim is whole panels of 64 columns, else one a panel
  int32_t broadcast_q;      // 1: Q does not depend on the sequence
  int32_t lse_begin_scale;  // rows of LSE before a sequence, per row of O before it: 1 packed, heads_q broadcast
  int32_t ragged_end;       // row coordinate at which every sequence ends in the tensor maps
  int32_t pack_shift;       // log2 of the query heads whose rows share a tile
  int64_t lse_head_stride;  // total_o packed, seqlen_q broadcast
  int64_t o_row_stride;     // elements
  int64_t o_head_stride;    // elements
  void* o;                  // [total_o, heads_q, head_dim]
  float* lse;               // [heads_q, total_o], broadcast [batch, heads_q, seqlen_q]; may be null
  uint32_t* places;         // [1] or null: tiles that were handed out beyond the first of each CTA; with a mask
};

// A tensor of rows x heads x head_dim elements whose last dimension is contiguous.
struct Tensor {
  void* data;
  int64_t row_stride;   // elements
  int64_t head_stride;  // elements
};

// The order of the backward; see src/schedule/backward.rs.
struct BackwardSchedule {
  const PlanState* state;     // [1]
  const Sequence* sequences;  // [batch]
  const Entry* entries;       // [backward_entries]
  const Entry* unseen;        // [unseen_entries]
  uint32_t heads;             // key heads
  uint32_t lanes;             // CTAs that share the list of one key head; 0: all CTAs share that of all heads
  uint32_t chain;             // adjacent lanes that add to the same partial sum of dQ, one after the other
  uint32_t launch_control;    // 1: a cluster a place of the list, which clusters that run take over; 0: they walk it
};

// What the CTAs of a backward tell each other, from zeros on.
struct Progress {
  uint32_t begun;   // places of the launch that CTAs have taken
  uint32_t ended;   // those of which all sums are made
  uint32_t shares;  // of dQ that were taken
};

// Row statistics and dQ lie in blocks of 64 queries. Sequences begin at whole blocks, see stat_block(); broadcast dQ
// has ceil(seqlen_q / 64) blocks, packed dQ those of the statistics.
struct BackwardParams {
  static constexpr int kAccumulateQ = 1, kAccumulateK = 2, kAccumulateV = 4;

  ForwardSchedule forward;  // blocks of queries, for the kernels before and after
  BackwardSchedule schedule;
  Mask mask;
  float scale;              // of the scores
  float scale_log2;         // scale * log2(e)
  int32_t group;            // query heads of a key head
  int32_t head_dim;         // elements, before padding to whole panels
  int32_t panel_boxes;      // boxes of a block of rows, as for the forward
  int32_t broadcast_q;      // 1: Q does not depend on the sequence
  int32_t lse_begin_scale;  // rows of LSE before a sequence, per row of O before it: 1 packed, heads_q broadcast
  int32_t ragged_end;       // row coordinate at which every sequence ends in the tensor maps
  int32_t ordered;          // 1: sums of dQ are made in a fixed order
  int32_t accumulate;       // bits: gradients that are added to what is there
  int32_t grad_q_fp32;      // 1: dQ is fp32, else of the type of Q
  int32_t stat_blocks;      // blocks of statistics of a head
  int32_t grad_q_blocks;    // blocks of dQ of a head in one partial sum
  int32_t parts;            // partial sums of dQ
  int32_t seqlen_q;         // of broadcast Q
  uint32_t batch;           // sequences
  int32_t tile_keys;        // keys of a tile, of a pair of CTAs together
  int64_t lse_head_stride;  // total_o packed, seqlen_q broadcast
  int64_t zero_floats;      // to be zeroed first, from `zeros` on
  const float* lse;         // [heads_q, total_o], broadcast [batch, heads_q, seqlen_q]
  float* stats;             // [heads_q, stat_blocks, 2, 64]: LSE in base 2, +inf for rows without keys; delta
  float* sums;              // [parts, heads_q, grad_q_blocks, 64 * head_dim rounded up], in the order of sum_offset()
  uint32_t* turns;          // [parts, heads_q, grad_q_blocks] or null: sums that were added to a block of dQ
  float* zeros;             // `sums` and the counters behind them, or only these
  uint32_t* places;         // [1] or null: places of the list that were handed out
  Progress* progress;       // [1]
  Tensor o, grad_o;
  Tensor grad_q, grad_k, grad_v;
};

}  // namespace jfa
