// The planner: from the offsets of a batch in device memory to its tile lists, in one cluster. Device twin of
// src/schedule. Every warp has a contiguous share of the sequences, so that its entries stay in their order.
#include <cooperative_groups.h>

#include "attention/params.cuh"

namespace jfa {
namespace {

constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;
constexpr int kClasses = 1024;  // classes 1 .. kClasses of the forward's entries; class 0 sees no key
// Entries are short up to this part of the longest sequence; see src/schedule/forward.rs.
constexpr int kShortPart = 16;

struct Shared {
  uint32_t counts[kWarps][kClasses + 1];  // entries of each class in the share of each warp, then where they go
  uint32_t totals[kClasses + 1];          // of all warps of the CTA
  uint32_t backward[kWarps], unseen[kWarps];
  uint32_t backward_total, unseen_total;
  uint32_t scan[kWarps];
  unsigned long long first_error;
  int longest;  // keys of a sequence
};

__device__ int64_t index_at(const void* array, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(array)[i] : static_cast<const int32_t*>(array)[i];
}

struct Finding {
  PlanError error = PlanError::kNone;
  int64_t index = 0, value = 0, bound = 0;
};

// Checks the range of sequence b in one array of offsets; `kinds` is the first of three errors.
__device__ Finding check_range(const void* offsets, bool wide, int b, int64_t total, PlanError kinds, int64_t& begin,
                               int64_t& length) {
  const auto kind = [&](int i) { return static_cast<PlanError>(static_cast<uint32_t>(kinds) + i); };
  begin = index_at(offsets, wide, b);
  const int64_t end = index_at(offsets, wide, b + 1);
  length = end - begin;
  if (begin < 0) return {kind(0), b, begin, 0};
  if (end < begin) return {kind(1), b + 1, end, begin};
  if (end > total) return {kind(2), b + 1, end, total};
  return {};
}

// Reads and checks sequence b.
__device__ Finding read_sequence(const PlanParams& p, int b, Sequence& sequence) {
  int64_t begin, slot;
  Finding f = check_range(p.kv_offsets, p.wide, b, p.total_kv, PlanError::kKvNegative, begin, slot);
  if (f.error != PlanError::kNone) return f;
  int64_t length = slot;
  if (p.kv_lengths != nullptr) {
    length = index_at(p.kv_lengths, p.wide, b);
    if (length < 0 || length > slot) return {PlanError::kKvLength, b, length, slot};
  }
  if (length > p.max_seqlen_kv) return {PlanError::kKvTooLong, b, length, p.max_seqlen_kv};
  sequence.begin_kv = begin;
  sequence.len_kv = static_cast<int32_t>(length);
  if (p.q_offsets == nullptr) {
    sequence.begin_q = 0;
    sequence.begin_o = static_cast<int64_t>(b) * p.max_seqlen_q;
    sequence.len_q = p.max_seqlen_q;
    return {};
  }
  f = check_range(p.q_offsets, p.wide, b, p.total_q, PlanError::kQNegative, begin, length);
  if (f.error != PlanError::kNone) return f;
  if (length > p.max_seqlen_q) return {PlanError::kQTooLong, b, length, p.max_seqlen_q};
  sequence.begin_q = sequence.begin_o = begin;
  sequence.len_q = static_cast<int32_t>(length);
  return {};
}

__device__ int blocks(int rows, int size) { return (rows + size - 1) / size; }

// Forward entries of a sequence.
__device__ int forward_entries(const PlanParams& p, int len_q) {
  return blocks(blocks(len_q, p.block_m), p.blocks_per_entry);
}

// Class of a forward entry: that of the keys of its sequence, or of its own keys if they are at most `few`.
__device__ int forward_class(const PlanParams& p, int few, int len_q, int len_kv, int entry) {
  const int diagonal = p.mask.diagonal(len_q, len_kv);
  const int row = entry * p.blocks_per_entry * p.block_m;
  const int last = min(row + p.blocks_per_entry * p.block_m, len_q) - 1;
  const int keys = max(p.mask.end_key(last, diagonal, len_kv) - p.mask.begin_key(row, diagonal), 0);
  return blocks(keys > few ? len_kv : keys, p.class_keys);
}

// The blocks of keys of a sequence that some query sees: [first, end).
struct Seen {
  int first, end, count;
};

__device__ Seen seen_blocks(const PlanParams& p, const Sequence& s) {
  const int count = blocks(s.len_kv, p.block_n), diagonal = p.mask.diagonal(s.len_q, s.len_kv);
  if (s.len_q == 0 || count == 0) return {0, 0, count};
  const int beyond = p.mask.right == Mask::kUnbounded ? s.len_kv : min(s.len_kv, s.len_q + diagonal + p.mask.right);
  const int before = p.mask.left == Mask::kUnbounded ? 0 : max(diagonal - p.mask.left, 0);
  if (beyond <= 0 || before >= s.len_kv) return {0, 0, count};
  const int first = before / p.block_n, end = blocks(beyond, p.block_n);
  return first < end ? Seen{first, end, count} : Seen{0, 0, count};
}

__device__ int padded(const PlanParams& p, const Seen& seen) {
  return blocks(seen.end - seen.first, p.cluster) * p.cluster;
}

__device__ uint32_t inclusive_scan(uint32_t value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// Visits items 0 .. counts - 1 of the 32 lanes in the order of lanes and items, 32 at a time: every lane calls
// visit(owner, item), with owner -1 where there is none. All lanes call together.
template <typename Visit>
__device__ void for_each_item(int count, Visit visit) {
  const int lane = threadIdx.x % 32;
  const uint32_t end = inclusive_scan(count), begin = end - count;
  const uint32_t total = __shfl_sync(~0u, end, 31);
  for (uint32_t base = 0; base < total; base += 32) {
    const uint32_t position = base + lane;
    int owner = 0;  // the first lane whose end lies beyond the position
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (__shfl_sync(~0u, end, owner + step - 1) <= position) owner += step;
    }
    const uint32_t first = __shfl_sync(~0u, begin, min(owner, 31));
    visit(position < total ? owner : -1, static_cast<int>(position - first));
  }
}

// Visits the sequences of this warp's share, 32 at a time: visit(first, number).
template <typename Visit>
__device__ void for_each_group(const PlanParams& p, Visit visit) {
  const int share = blocks(blocks(p.batch, 32), kWarps * gridDim.x) * 32;
  const int begin = (blockIdx.x * kWarps + threadIdx.x / 32) * share, end = min(begin + share, p.batch);
  for (int base = begin; base < end; base += 32) visit(base, min(end - base, 32));
}

// The sequence of this lane, or an empty one.
__device__ Sequence load_sequence(const PlanParams& p, int base, int count) {
  const int lane = threadIdx.x % 32;
  return lane < count ? p.sequences[base + lane] : Sequence{};
}

// Writes this warp's share of the lists, in the order of the sequences within each class, blocks of queries from the
// last one on.
__device__ void write_lists(const PlanParams& p, Shared& shared, int few, uint32_t backward_base,
                            uint32_t unseen_base) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t backward_at = backward_base + shared.backward[warp], unseen_at = unseen_base + shared.unseen[warp];
  for_each_group(p, [&](int base, int count) {
    const Sequence s = load_sequence(p, base, count);
    for_each_item(forward_entries(p, s.len_q), [&](int owner, int item) {
      const int len_q = __shfl_sync(~0u, s.len_q, max(owner, 0)), len_kv = __shfl_sync(~0u, s.len_kv, max(owner, 0));
      const int entry = forward_entries(p, len_q) - 1 - item;
      const int cls = owner >= 0 ? forward_class(p, few, len_q, len_kv, entry) : -1;
      const uint32_t peers = __match_any_sync(~0u, cls);
      const uint32_t rank = __popc(peers & ((1u << lane) - 1));
      if (owner >= 0) {
        const uint32_t at = shared.counts[warp][cls] + rank;
        p.forward[at] = {static_cast<uint32_t>(base + owner), static_cast<uint32_t>(entry * p.blocks_per_entry)};
      }
      __syncwarp();
      if (owner >= 0 && rank == 0) shared.counts[warp][cls] += __popc(peers);
      __syncwarp();
    });
    const Seen seen = seen_blocks(p, s);
    auto write_blocks = [&](int count, Entry* list, uint32_t& at, auto block_of) {
      const uint32_t first = at;
      uint32_t written = 0;
      for_each_item(count, [&](int owner, int item) {
        const Seen from = {__shfl_sync(~0u, seen.first, max(owner, 0)), __shfl_sync(~0u, seen.end, max(owner, 0)),
                           __shfl_sync(~0u, seen.count, max(owner, 0))};
        if (owner >= 0) {
          list[first + written + lane] = {static_cast<uint32_t>(base + owner),
                                          static_cast<uint32_t>(block_of(from, item))};
        }
        written += 32;
      });
      at = first + __reduce_add_sync(~0u, count);
    };
    write_blocks(padded(p, seen), p.backward, backward_at,
                 [](const Seen& f, int i) { return i < f.end - f.first ? f.first + i : f.count; });
    write_blocks(seen.count - (seen.end - seen.first), p.unseen, unseen_at,
                 [](const Seen& f, int i) { return i < f.first ? i : i + f.end - f.first; });
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) jfa_plan_update_kernel(const __grid_constant__ PlanParams p) {
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const auto cluster = cooperative_groups::this_cluster();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t rank = cluster.block_rank(), ranks = cluster.num_blocks();

  // 1. Read and check.
  if (threadIdx.x == 0) {
    shared.first_error = ~0ull;
    shared.longest = 0;
  }
  for (int i = threadIdx.x; i < kWarps * (kClasses + 1); i += kThreads) (&shared.counts[0][0])[i] = 0;
  cluster.sync();
  unsigned long long* first_error = cluster.map_shared_rank(&shared.first_error, 0);
  int* const longest = cluster.map_shared_rank(&shared.longest, 0);
  int most = 0;  // keys of this thread's sequences
  for_each_group(p, [&](int base, int count) {
    Sequence sequence;
    if (lane >= count) return;
    if (read_sequence(p, base + lane, sequence).error != PlanError::kNone) {
      atomicMin(first_error, static_cast<unsigned long long>(base + lane));
    } else {
      p.sequences[base + lane] = sequence;
      most = max(most, sequence.len_kv);
    }
  });
  most = __reduce_max_sync(~0u, most);
  if (lane == 0) atomicMax(longest, most);
  cluster.sync();
  const unsigned long long error = *first_error;
  if (error == ~0ull) {
    const int few = *longest / kShortPart;
    // 2. Count: forward entries by class, backward entries, for each warp's share of the sequences.
    uint32_t backward = 0, unseen = 0;
    for_each_group(p, [&](int base, int count) {
      const Sequence s = load_sequence(p, base, count);
      for_each_item(forward_entries(p, s.len_q), [&](int owner, int item) {
        const int len_q = __shfl_sync(~0u, s.len_q, max(owner, 0)), len_kv = __shfl_sync(~0u, s.len_kv, max(owner, 0));
        if (owner >= 0) atomicAdd(&shared.counts[warp][forward_class(p, few, len_q, len_kv, item)], 1);
      });
      const Seen seen = seen_blocks(p, s);
      backward += padded(p, seen);
      unseen += seen.count - (seen.end - seen.first);
    });
    shared.backward[warp] = __reduce_add_sync(~0u, backward);
    shared.unseen[warp] = __reduce_add_sync(~0u, unseen);
    __syncthreads();

    // 3. Where each share goes: the highest class first, and within a class the first share first. Thread t has class
    //    kClasses - t, the last one class 0 too.
    const int cost = kClasses - threadIdx.x;
    uint32_t entries = 0, keyless = 0;
    for (int w = 0; w < kWarps; ++w) {
      entries += shared.counts[w][cost];
      if (cost == 1) keyless += shared.counts[w][0];
    }
    shared.totals[cost] = entries;
    if (cost == 1) shared.totals[0] = keyless;
    if (warp == 0) {
      const uint32_t backward_end = inclusive_scan(shared.backward[lane]);
      const uint32_t unseen_end = inclusive_scan(shared.unseen[lane]);
      shared.backward[lane] = backward_end - shared.backward[lane];
      shared.unseen[lane] = unseen_end - shared.unseen[lane];
      if (lane == 31) {
        shared.backward_total = backward_end;
        shared.unseen_total = unseen_end;
      }
    }
    cluster.sync();
    uint32_t all = 0, before = 0, backward_base = 0, unseen_base = 0;
    PlanState state = {};
    for (uint32_t r = 0; r < ranks; ++r) {
      const Shared& other = *cluster.map_shared_rank(&shared, r);
      if (r == rank) {
        before = all;
        keyless = state.keyless_entries;
        backward_base = state.backward_entries;
        unseen_base = state.unseen_entries;
      }
      all += other.totals[cost];
      state.keyless_entries += other.totals[0];
      state.backward_entries += other.backward_total;
      state.unseen_entries += other.unseen_total;
    }
    const uint32_t within = inclusive_scan(all);
    if (lane == 31) shared.scan[warp] = within;
    __syncthreads();
    if (warp == 0) {
      const uint32_t sums = inclusive_scan(shared.scan[lane]);
      __syncwarp();
      shared.scan[lane] = sums;
    }
    cluster.sync();  // also: nobody reads another CTA's totals any more
    state.forward_entries = shared.scan[kWarps - 1];
    uint32_t position = within - all + before + (warp > 0 ? shared.scan[warp - 1] : 0);
    uint32_t keyless_position = state.forward_entries + keyless;
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t count = shared.counts[w][cost];
      shared.counts[w][cost] = position;
      position += count;
      if (cost == 1) {
        const uint32_t none = shared.counts[w][0];
        shared.counts[w][0] = keyless_position;
        keyless_position += none;
      }
    }
    __syncthreads();
    write_lists(p, shared, few, backward_base, unseen_base);
    if (rank == 0 && threadIdx.x == 0) *p.state = state;
  } else {
    cluster.sync();  // nobody leaves before all have read the error
    if (rank == 0 && threadIdx.x == 0) {
      Sequence sequence;
      const Finding f = read_sequence(p, static_cast<int>(error), sequence);
      *p.state = {0, 0, 0, 0, f.error, 0, f.index, f.value, f.bound};
    }
  }
}

}  // namespace jfa
