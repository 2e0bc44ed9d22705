// The threads of the Q-stationary backward that load and store, and what the roles share.
#pragma once

#include "sm90/backward/config.h"
#include "sm90/backward/gradients.cuh"

namespace jfa::sm90 {

// One block of 64 keys, as it lies in shared memory.
struct alignas(16) KeyTile {
  int32_t kv_row, kv_end;  // ragged coordinates of its first key
  int32_t keys;            // in it, up to 64
  int32_t sequence;        // ordinal in this CTA, times 2; odd: the last tile of its warpgroup in the sequence
};

// Shared-memory addresses of a CTA.
template <typename C>
struct QStationaryShared : CtaShared<C, KeyTile> {
  using CtaShared<C, KeyTile>::base;

  __device__ uint32_t q() const { return base; }
  __device__ uint32_t grad_o(int i) const { return base + C::kOffsetGradO + i * C::kBytesQ; }
  __device__ uint32_t k(int slot) const { return base + C::kOffsetSlots + slot * C::kBytesSlot; }
  __device__ uint32_t v(int slot) const { return k(slot) + C::kBytesKv; }  // and, when it is used up, dS
  __device__ uint32_t staging(int warpgroup, int panel) const {
    return base + C::kOffsetStaging + (warpgroup * C::kPanels + panel) * C::kPanelGradient;
  }
  __device__ uint32_t stats(int i) const { return base + C::kOffsetStats + i * C::kBytesStats; }
};

// The place of a warpgroup's tiles, every other one, in the rings of slots and of barriers for copies.
template <typename C>
struct EveryOther {
  int copy;
  uint32_t phase = 0;

  __device__ explicit EveryOther(int warpgroup) : copy(warpgroup) {}

  __device__ int slot() const { return copy < C::kSlots ? copy : copy - C::kSlots; }

  __device__ void advance() {
    copy += 2;
    if (copy >= C::kCopies) {
      copy -= C::kCopies;
      phase ^= 1;
    }
  }
};

// The tiles of this CTA: an equal share of the list of its head.
struct TileRange {
  uint32_t head, lane, begin, end;

  __device__ explicit TileRange(const BackwardSchedule& s) : head(blockIdx.x % s.heads), lane(blockIdx.x / s.heads) {
    const uint64_t entries = s.state->backward_entries;
    begin = entries * lane / s.lanes;
    end = entries * (lane + 1) / s.lanes;
  }
};

template <typename C>
__device__ void load(const BackwardParams& p, const BackwardMaps& maps, QStationaryShared<C> shared,
                     const TileRange& range) {
  atomicAdd(&p.progress->begun, 1);
  if (range.begin == range.end) return;
  const BackwardSchedule& s = p.schedule;
  const int q_row = p.ragged_end - p.seqlen_q;
  auto load_block = [&](uint32_t dst, int panel_bytes, int bytes, const CUtensorMap& map, uint32_t barrier, int row,
                        int end) {
    ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    load_rows(dst, panel_bytes, map, barrier, p.panel_boxes, row, range.head, end);
  };
  load_block(shared.q(), C::kPanelQ, C::kBytesQ, maps.q, shared.barrier(C::kQFull), q_row, p.seqlen_q);
  Ring<C::kSlots> slot;
  Ring<C::kCopies> copy;
  Entry next = s.entries[range.begin];
  Entry entry = {~0u, 0};
  int sequences = 0, sequence_end = 0;
  int32_t kv_end = 0, kv_begin_row = 0, len_kv = 0, o_end = 0;
  for (uint32_t t = range.begin; t < range.end; ++t) {
    const bool starts = next.batch != entry.batch;
    entry = next;
    if (t + 1 < range.end) next = s.entries[t + 1];
    if (starts) {
      const Sequence& seq = s.sequences[entry.batch];
      len_kv = seq.len_kv;
      kv_end = static_cast<int32_t>(seq.begin_kv) + len_kv;
      kv_begin_row = p.ragged_end - len_kv;
      o_end = static_cast<int32_t>(seq.begin_o) + seq.len_q;
      sequence_end = min(t - entry.block + (len_kv + C::kBlockN - 1) / C::kBlockN, range.end);
      ++sequences;
    }
    const int i = slot.index, row = kv_begin_row + entry.block * C::kBlockN;
    shared.wait(C::kSlotEmpty + i, slot.phase ^ 1);
    const bool last = t + 2 >= sequence_end;
    shared.tile(i) = {row, kv_end, min(p.ragged_end - row, C::kBlockN), 2 * (sequences - 1) + (last ? 1 : 0)};
    load_block(shared.k(i), C::kPanelKv, C::kBytesKv, maps.k, shared.barrier(C::kKFull + copy.index), row, kv_end);
    if (starts) {
      const int d = (sequences - 1) % 2, barrier = shared.barrier(C::kGradOFull + d);
      shared.wait(C::kGradOEmpty + d, (sequences - 1) / 2 % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, C::kBytesQ + C::kBytesStats);
      load_rows(shared.grad_o(d), C::kPanelQ, maps.grad_o, barrier, p.panel_boxes, q_row, range.head, o_end);
      const int64_t stats =
          static_cast<int64_t>(range.head) * p.stat_blocks + stat_block(o_end - p.seqlen_q, entry.batch);
      ptx::bulk_load(shared.stats(d), p.stats + stats * 2 * kStatRows, C::kBytesStats, barrier);
    }
    load_block(shared.v(i), C::kPanelKv, C::kBytesKv, maps.v, shared.barrier(C::kVFull + copy.index), row, kv_end);
    slot.advance();
    copy.advance();
  }
}

// Stores dK and dV of every other tile of the CTA, panel by panel as a warpgroup stages them.
template <typename C>
__device__ void store(const BackwardParams& p, const BackwardMaps& maps, QStationaryShared<C> shared,
                      const TileRange& range, int warpgroup) {
  EveryOther<C> place(warpgroup);
#pragma unroll 1
  for (uint32_t tile = range.begin + warpgroup; tile < range.end; tile += 2) {
    shared.wait(C::kKFull + place.copy, place.phase);
    const int slot = place.slot();
    const KeyTile& t = shared.tile(slot);
    const GradientRows rows = {t.kv_row, static_cast<int32_t>(range.head), t.kv_end};
    shared.arrive(C::kSlotEmpty + slot);
    auto store_panels = [&](const CUtensorMap& map, int add, uint32_t parity) {
#pragma unroll
      for (int panel = 0; panel < C::kPanels; ++panel) {
        shared.wait(C::kStaged + warpgroup * C::kPanels + panel, parity);
        if (panel * 64 < p.head_dim) {
          store_box(shared.staging(warpgroup, panel), map, panel, p.head_dim, rows, p.accumulate & add);
        }
        ptx::bulk_commit_group();
        ptx::bulk_wait_group_read<0>();
        shared.arrive(C::kStagingFree + warpgroup * C::kPanels + panel);
      }
    };
    store_panels(maps.grad_v, BackwardParams::kAccumulateV, 0);
    store_panels(maps.grad_k, BackwardParams::kAccumulateK, 1);
    place.advance();
  }
  ptx::bulk_wait_group<0>();
}

}  // namespace jfa::sm90
