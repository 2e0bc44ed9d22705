// The thread of the K/V-stationary backward that brings what a warpgroup staged to global memory.
#pragma once

#include "sm90/backward/kv_producer.cuh"

namespace jfa::sm90 {

// Adds the sums of dQ of one warpgroup and stores its dK and dV, in the order in which it stages them: in a step those
// of the tile before, if there are any, then the sums. It also keeps the order of sums, if there is one.
template <typename C, int kWarpgroup>  // registers are few
struct KvStationaryStorer {
  const BackwardParams& p;
  const BackwardMaps& maps;
  const KvStationaryShared<C> shared;
  uint32_t phase = 0;

  JFA_INLINE void run() {
#pragma unroll 1
    for (uint32_t number = 0;; ++number) {
      shared.wait(C::kTileFull + number % C::kTiles, number / C::kTiles % 2);
      if (number > 0) {
        const uint32_t before = (number - 1) % C::kTiles;
        store_gradients(shared.tile(before));
        shared.arrive(C::kTileEmpty + before);
      }
      const BackwardTile& t = shared.tile(number % C::kTiles);
      if (t.keys == 0) break;
      int sum_block = t.sum_block + t.first_block;
#pragma unroll 1
      for (int head = 0; head < p.group; ++head) {
#pragma unroll 1
        for (int block = 0; block < t.blocks; ++block, ++sum_block) {
          if (!C::kTakeTurns || sum_block % 2 == kWarpgroup) add_sums(t, block, sum_block);
        }
        sum_block += p.grad_q_blocks - t.blocks;
      }
    }
    ptx::bulk_wait_group<0>();
    shared.arrive(C::kSumsMade);
  }

  JFA_INLINE void wait_staged() {
    shared.wait(C::kStaged + kWarpgroup, phase);
    phase ^= 1;
  }

  // Ends a group and gives the buffer back when it was read.
  JFA_INLINE void give_back() const {
    ptx::bulk_commit_group();
    ptx::bulk_wait_group_read<0>();
    shared.arrive(C::kStagingFree + kWarpgroup);
  }

  JFA_INLINE void store_gradients(const BackwardTile& t) {
    if (C::is_keyless(t.keys, kWarpgroup)) return;
    const GradientRows rows = {t.kv_row + C::first_key(kWarpgroup), t.head, t.kv_end};
    store(maps.grad_v, rows, BackwardParams::kAccumulateV);
    store(maps.grad_k, rows, BackwardParams::kAccumulateK);
  }

  // What is ordered are partial sums of dQ, for which L2 has just room: dK and dV leave it to them.
  JFA_INLINE void store(const CUtensorMap& map, const GradientRows& rows, int add) {
    constexpr int kPanels = C::kColumns / 64;
    const int first = C::kSplitColumns ? kWarpgroup * kPanels : 0;
    const int end = p.head_dim % 64 == 0 ? first + 1 : min(first + kPanels, (p.head_dim + 63) / 64);
    wait_staged();
#pragma unroll 1
    for (int panel = first; panel < end; ++panel) {
      store_box(shared.staging(kWarpgroup) + (panel - first) * C::kPanelGradient, map, panel, p.head_dim, rows,
                p.accumulate & add, p.ordered);
    }
    give_back();
  }

  // Adds the columns of a block of dQ that this warpgroup has, when all sums are made that come before: those of the
  // key blocks before for packed Q, of the tiles before in the same partial sum for broadcast Q, which then has no
  // mask.
  JFA_INLINE void add_sums(const BackwardTile& t, int block, int sum_block) {
    if (p.turns != nullptr) {
      uint32_t turn = t.turn;
      if constexpr (C::kMask) turn -= p.mask.begin_key((t.first_block + block) * kStatRows, t.diagonal) / C::kBlockN;
      while (ptx::load_acquire(p.turns + sum_block) < turn * C::kAddersOfSum) ptx::nanosleep();
    }
    const int rows = min(p.ragged_end - t.q_row - (t.first_block + block) * kStatRows, kStatRows);
    const int bytes = (rows + 15) / 16 * (16 * kSumColumns * 4);
#pragma unroll 1
    for (int i = 0; i < C::kPieces; ++i) {
      wait_staged();
      const int64_t at = static_cast<int64_t>(sum_block) * C::kPanels + C::first_piece(kWarpgroup) + i;
      float* to = p.sums + at * (kStatRows * kSumColumns);
      if (!p.broadcast_q && makes_sums(t, C::kBlockN)) {
        ptx::bulk_store(to, shared.staging(kWarpgroup), bytes);
      } else {
        ptx::bulk_add_f32(to, shared.staging(kWarpgroup), bytes);
      }
      give_back();
    }
    if (!p.ordered) return;
    ptx::bulk_wait_group<0>();
    if (p.turns != nullptr) ptx::add_release(p.turns + sum_block);
  }
};

}  // namespace jfa::sm90
