// The thread of the K/V-stationary backward that brings what a warpgroup staged to global memory.
#pragma once

#include "sm90/backward/kv_producer.cuh"

namespace jfa::sm90 {

// Adds the sums of dQ of one warpgroup and stores its dK and dV, in the order in which it stages them: in a step those
// of the tile before, if there are any, then the sums. It also keeps the order of sums, if there is one.
template <typename C, int kWarpgroup>  // registers are few
class KvStationaryStorer {
 public:
  JFA_INLINE KvStationaryStorer(const BackwardParams& params, const BackwardMaps& maps, KvStationaryShared<C> shared)
      : p_(params), maps_(maps), shared_(shared) {}

  JFA_INLINE void run() {
#pragma unroll 1
    for (uint32_t number = 0;; ++number) {
      ptx::mbarrier_wait(shared_.tile_full(number % C::kTiles), number / C::kTiles % 2);
      if (number > 0) {
        const uint32_t before = (number - 1) % C::kTiles;
        store_gradients(shared_.tile(before));
        ptx::mbarrier_arrive(shared_.tile_empty(before));
      }
      const BackwardTile& t = shared_.tile(number % C::kTiles);
      if (t.keys == 0) break;
      int sum_block = t.sum_block + t.first_block;
#pragma unroll 1
      for (int head = 0; head < p_.group; ++head) {
#pragma unroll 1
        for (int block = 0; block < t.blocks; ++block, ++sum_block) {
          if (!C::kTakeTurns || sum_block % 2 == kWarpgroup) add_sums(t, block, sum_block);
        }
        sum_block += p_.grad_q_blocks - t.blocks;
      }
    }
    ptx::bulk_wait_group<0>();
    ptx::mbarrier_arrive(shared_.sums_made());
  }

 private:
  JFA_INLINE void wait_staged() {
    ptx::mbarrier_wait(shared_.staged(kWarpgroup), phase_);
    phase_ ^= 1;
  }

  // Ends a group and gives the buffer back when it was read.
  JFA_INLINE void give_back() const {
    ptx::bulk_commit_group();
    ptx::bulk_wait_group_read<0>();
    ptx::mbarrier_arrive(shared_.staging_free(kWarpgroup));
  }

  JFA_INLINE void store_gradients(const BackwardTile& t) {
    if (C::is_keyless(t.keys, kWarpgroup)) return;
    const GradientRows rows = {t.kv_row + C::first_key(kWarpgroup), t.head, t.kv_end};
    store(maps_.grad_v, rows, BackwardParams::kAccumulateV);
    store(maps_.grad_k, rows, BackwardParams::kAccumulateK);
  }

  // What is ordered are partial sums of dQ, for which L2 has just room: dK and dV leave it to them.
  JFA_INLINE void store(const CUtensorMap& map, const GradientRows& rows, int add) {
    constexpr int kPanels = C::kColumns / 64;
    const int first = C::kSplitColumns ? kWarpgroup * kPanels : 0;
    const int end = p_.head_dim % 64 == 0 ? first + 1 : min(first + kPanels, (p_.head_dim + 63) / 64);
    wait_staged();
#pragma unroll 1
    for (int panel = first; panel < end; ++panel) {
      store_box(shared_.staging(kWarpgroup) + (panel - first) * C::kPanelGradient, map, panel, p_.head_dim, rows,
                p_.accumulate & add, p_.ordered);
    }
    give_back();
  }

  // Adds the columns of a block of dQ that this warpgroup has, when all sums are made that come before: those of the
  // key blocks before for packed Q, of the tiles before in the same partial sum for broadcast Q, which then has no
  // mask.
  JFA_INLINE void add_sums(const BackwardTile& t, int block, int sum_block) {
    if (p_.turns != nullptr) {
      uint32_t turn = t.turn;
      if constexpr (C::kMask) turn -= p_.mask.begin_key((t.first_block + block) * kStatRows, t.diagonal) / C::kBlockN;
      while (ptx::load_acquire(p_.turns + sum_block) < turn * C::kAddersOfSum) ptx::nanosleep();
    }
    const int rows = min(p_.ragged_end - t.q_row - (t.first_block + block) * kStatRows, kStatRows);
    const int bytes = (rows + 15) / 16 * (16 * kSumColumns * 4);
#pragma unroll 1
    for (int i = 0; i < C::kPieces; ++i) {
      wait_staged();
      const int64_t at = static_cast<int64_t>(sum_block) * C::kPanels + C::first_piece(kWarpgroup) + i;
      float* to = p_.sums + at * (kStatRows * kSumColumns);
      if (!p_.broadcast_q && makes_sums(t, C::kBlockN)) {
        ptx::bulk_store(to, shared_.staging(kWarpgroup), bytes);
      } else {
        ptx::bulk_add_f32(to, shared_.staging(kWarpgroup), bytes);
      }
      give_back();
    }
    if (!p_.ordered) return;
    ptx::bulk_wait_group<0>();
    if (p_.turns != nullptr) ptx::add_release(p_.turns + sum_block);
  }

  const BackwardParams& p_;
  const BackwardMaps& maps_;
  const KvStationaryShared<C> shared_;
  uint32_t phase_ = 0;
};

}  // namespace jfa::sm90
