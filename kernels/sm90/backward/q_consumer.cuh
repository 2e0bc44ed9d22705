// The warpgroups of the Q-stationary backward that multiply: two with tiles of their own, one that sums dQ.
// docs/backward.md tells the order of a tile.
#pragma once

#include "sm90/backward/q_producer.cuh"

namespace jfa::sm90 {

// dK and dV of every other tile of the CTA, and its dS for `sum_queries`.
template <typename C>
struct QStationaryConsumer {
  using T = typename C::T;
  static constexpr int kBlocks = C::kBlocks, kPanels = C::kPanels;

  const BackwardParams& p;
  const QStationaryShared<C> shared;
  const int warpgroup, warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;

  JFA_INLINE void arrive(int barrier) const {
    if (lane == 0) shared.arrive(barrier);
  }

  // Stages 64 columns of this warp's rows of dK or dV. Each buffer holds dV, then dK of a tile.
  JFA_INLINE void stage(const float* x, float factor, int panel, uint32_t parity) const {
    shared.wait(C::kStagingFree + warpgroup * kPanels + panel, parity);
    round_panel<T>(x, factor, shared.staging(warpgroup, panel) + warp * (16 * 128));
    ptx::fence_proxy_async_shared();
    __syncwarp();
    arrive(C::kStaged + warpgroup * kPanels + panel);
  }
  JFA_INLINE void stage_grad_v(const float* x, int panel) const { stage(x, 1, panel, 1); }
  JFA_INLINE void stage_grad_k(const float* x, int panel) const { stage(x, p.scale, panel, 0); }

  JFA_INLINE void run(uint32_t tiles) const {
    if (tiles <= warpgroup) return;
    float last_grad_k[32];  // the last panel of the tile before
    int sequence = -1;      // the last one whose dO was given back
    EveryOther<C> place(warpgroup);
    bool unstored = false;
    shared.wait(C::kQFull, 0);
#pragma unroll 1
    for (uint32_t left = (tiles - warpgroup + 1) / 2; left > 0; --left) {
      float s[kBlocks * 32], dp[kBlocks * 32];
      uint32_t prob[kBlocks * 16], score_grad[kBlocks * 16];
      const int slot = place.slot();
      const uint32_t k = shared.k(slot), v = shared.v(slot);
      shared.wait(C::kKFull + place.copy, place.phase);
      const KeyTile& t = shared.tile(slot);
      const int keys = ptx::uniform(t.keys), ordinal = ptx::uniform(t.sequence);
      ptx::wgmma_fence();
      multiply_rows<T, C::kDim, C::kQueries>(s, k, C::kPanelKv, shared.q(), C::kPanelQ);
      ptx::wgmma_commit_group();
      if (unstored) stage_grad_k(last_grad_k, kPanels - 1);
      unstored = true;
      // Sequences without a tile of this warpgroup: wait for their dO before it is given back, so that a phase cannot
      // end by two arrivals of one warp.
      for (; sequence + 1 < ordinal / 2; ++sequence) {
        shared.wait(C::kGradOFull + (sequence + 1) % 2, (sequence + 1) / 2 % 2);
        arrive(C::kGradOEmpty + (sequence + 1) % 2);
      }
      const int d = ordinal / 2 % 2;
      const uint32_t grad_o = shared.grad_o(d), stats = shared.stats(d);
      shared.wait(C::kGradOFull + d, ordinal / 4 % 2);
      shared.wait(C::kVFull + place.copy, place.phase);
      ptx::wgmma_fence();
      multiply_rows<T, C::kDim, C::kQueries>(dp, v, C::kPanelKv, grad_o, C::kPanelQ);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();
      ptx::wgmma_pin<kBlocks * 32>(s);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (keys < 64) hide_keys(s + 32 * b, keys, p.scale > 0 ? -INFINITY : INFINITY);  // scaled, it is -inf
        probabilities(s + 32 * b, p.scale_log2, stats + b * (2 * kStatRows * 4));
      }
      ptx::wgmma_pin<kBlocks * 32>(s);
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_pin<kBlocks * 32>(dp);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        pack_probabilities<T>(s + 32 * b, prob + 16 * b);
        score_gradients<T>(s + 32 * b, dp + 32 * b, stats + b * (2 * kStatRows * 4), score_grad + 16 * b);
      }
      float grad_v[kPanels][32], grad_k[kPanels][32];
      ptx::wgmma_fence();
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        multiply_columns<T, 64, C::kQueries>(grad_v[panel], prob, grad_o + panel * C::kPanelQ, C::kPanelQ, 0);
        ptx::wgmma_commit_group();
      }
      ptx::bar_sync(1 + warpgroup, 128);  // V is used up: dS takes its place
      store_transposed<kBlocks * 4>(v, score_grad);
      ptx::fence_proxy_async_shared();
      __syncwarp();
      arrive(C::kScoreGradFull + slot);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        ptx::wgmma_wait_group<kPanels - 1>();
        ptx::wgmma_pin<32>(grad_v[panel]);
        if (panel == kPanels - 1 && ordinal % 2 == 1) {
          sequence = ordinal / 2;
          arrive(C::kGradOEmpty + d);
        }
        stage_grad_v(grad_v[panel], panel);
        ptx::wgmma_fence();
        multiply_columns<T, 64, C::kQueries>(grad_k[panel], score_grad, shared.q() + panel * C::kPanelQ, C::kPanelQ, 0);
        ptx::wgmma_commit_group();
      }
      if constexpr (kPanels == 2) {
        ptx::wgmma_wait_group<1>();
        ptx::wgmma_pin<32>(grad_k[0]);
        stage_grad_k(grad_k[0], 0);
      }
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_pin<32>(grad_k[kPanels - 1]);
#pragma unroll
      for (int i = 0; i < 32; ++i) last_grad_k[i] = grad_k[kPanels - 1][i];
      place.advance();
    }
    stage_grad_k(last_grad_k, kPanels - 1);
  }
};

// dQ of all tiles of the CTA, in registers, written once as one partial sum. Gives the slots back.
template <typename C>
JFA_INLINE void sum_queries(const BackwardParams& p, QStationaryShared<C> shared, const TileRange& range) {
  const int warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;
  float sum[C::kBlocks][C::kDim / 2];
#pragma unroll
  for (int b = 0; b < C::kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) sum[b][i] = 0;
  }
  Ring<C::kSlots> slot;
  Ring<C::kCopies> copy;
#pragma unroll 1
  for (uint32_t tile = range.begin; tile < range.end; ++tile) {
    shared.wait(C::kKFull + copy.index, copy.phase);
    shared.wait(C::kScoreGradFull + slot.index, slot.phase);
    const uint32_t a = ptx::wgmma_descriptor_low(shared.v(slot.index), 16);
    const uint32_t b = ptx::wgmma_descriptor_low(shared.k(slot.index), C::kPanelKv);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kBlockN / 16; ++step) {
#pragma unroll
      for (int block = 0; block < C::kBlocks; ++block) {
        ptx::wgmma_ss<typename C::T, C::kDim, 1>(sum[block],
                                                 ptx::wgmma_descriptor(a + block * (64 * 128 / 16) + step * 2),
                                                 ptx::wgmma_descriptor(b + step * (16 * 128 / 16)), 1);
      }
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    if (lane == 0) shared.arrive(C::kSlotEmpty + slot.index);
    slot.advance();
    copy.advance();
  }
  const int64_t first = (static_cast<int64_t>(range.lane) * p.schedule.heads + range.head) * p.grad_q_blocks;
#pragma unroll
  for (int block = 0; block < C::kBlocks; ++block) {
    ptx::wgmma_pin<C::kDim / 2>(sum[block]);
    if (block >= p.grad_q_blocks) break;
    float* to = p.sums + (first + block) * (kStatRows * C::kDim);
#pragma unroll
    for (int column = 0; column < C::kDim / 8; ++column) {
      const float* x = sum[block] + 4 * column;
      *reinterpret_cast<float4*>(to + sum_offset(column, warp, lane)) = make_float4(x[0], x[1], x[2], x[3]);
    }
  }
  shared.arrive(C::kSumsMade);
}

}  // namespace jfa::sm90
