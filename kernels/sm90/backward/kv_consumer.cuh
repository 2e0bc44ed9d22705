// The warpgroups of the K/V-stationary backward that multiply. docs/backward.md tells the order of a step.
#pragma once

#include "sm90/backward/kv_producer.cuh"

namespace jfa::sm90 {

template <typename C>
struct KvStationaryConsumer {
  using T = typename C::T;
  static constexpr int kColumns = C::kColumns;

  const BackwardParams& p;
  const KvStationaryShared<C> shared;
  const int warpgroup, warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;
  uint32_t free_phase = 1;  // of the staging buffer

  JFA_INLINE void arrive(int barrier) const { shared.arrive_if(lane == 0, barrier); }

  // Hides what these keys are not seen by: queries outside the window.
  JFA_INLINE void hide_queries(float* s, const BackwardTile& t, int block, float hidden) const {
    const int key = t.key + C::first_key(warpgroup) + warp * 16 + lane / 4 - t.diagonal;
    const int low = key - p.mask.right - block * 64 - lane % 4 * 2,
              high = key + p.mask.left - block * 64 - lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int column = i / 4 * 8 + i % 2 - i % 4 / 2 * 8;
      if (column < low || column > high) s[i] = hidden;
    }
  }

  // Whether some query of a block does not see some key of this warpgroup.
  JFA_INLINE bool cut_by_window(const BackwardTile& t, int block) const {
    return p.mask.cuts(block * 64, 64, t.key + C::first_key(warpgroup) - t.diagonal, 64);
  }

  JFA_INLINE void wait_staging() {
    shared.wait(C::kStagingFree + warpgroup, free_phase);
    free_phase ^= 1;
  }

  // Leaves the staging buffer to the thread that stores.
  JFA_INLINE void hand_over() const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    arrive(C::kStaged + warpgroup);
  }

  JFA_INLINE void stage_sum(const float* sum) {
    wait_staging();
    const uint32_t to = shared.staging(warpgroup) + warp * (16 * kSumColumns * 4) + lane * 16;
#pragma unroll
    for (int x = 0; x < 8; ++x) {
      ptx::store_shared4(to + x * 512, sum[4 * x], sum[4 * x + 1], sum[4 * x + 2], sum[4 * x + 3]);
    }
    hand_over();
  }

  // Stages this warp's rows of dK or dV.
  JFA_INLINE void stage_gradient(const float* x, float factor) {
    wait_staging();
    const uint32_t to = shared.staging(warpgroup) + warp * (16 * 128);
#pragma unroll
    for (int i = 0; i < kColumns / 64; ++i) round_panel<T>(x + 32 * i, factor, to + i * C::kPanelGradient);
    hand_over();
  }

  // 64 columns of dS^T K, the piece-th, of all keys of the tile.
  JFA_INLINE void multiply_sum(float* sum, uint32_t score_grad, uint32_t keys, int piece) const {
    const uint32_t a = ptx::wgmma_descriptor_low(score_grad, 16);
    const uint32_t b = ptx::wgmma_descriptor_low(keys + piece * C::kPanelKv, C::kPanelKv);
    ptx::wgmma_fence();
#pragma unroll
    for (int x = 0; x < C::kBlockN / 16; ++x) {
      ptx::wgmma_ss<T, 64, 1>(sum, ptx::wgmma_descriptor(a + x / 4 * (64 * 128 / 16) + x % 4 * 2),
                              ptx::wgmma_descriptor(b + x * (16 * 128 / 16)), x > 0);
    }
    ptx::wgmma_commit_group();
  }

  JFA_INLINE void multiply_grad_k(float* grad_k, const uint32_t* score_grad, uint32_t q, int step) const {
    ptx::wgmma_fence();
    multiply_columns<T, kColumns, 64>(grad_k, score_grad, q + column_offset(), C::kPanelQ, step > 0);
    ptx::wgmma_commit_group();
  }

  // Where this warpgroup's columns of Q and dO begin.
  JFA_INLINE uint32_t column_offset() const { return C::kSplitColumns ? warpgroup * (kColumns / 64) * C::kPanelQ : 0; }

  JFA_INLINE void run() {
    float grad_k[kColumns / 2], grad_v[kColumns / 2];
    Ring<C::kTiles> tile;
    Ring<C::kKeyBuffers> key_buffer;
    Ring<C::kStages> stage;
    uint32_t v_phase = 0, parity = 0;
    bool unstored = false;  // dK and dV of the tile before are still in registers
    const int first_piece = C::first_piece(warpgroup), first_key = C::first_key(warpgroup);
    const float hidden = p.scale > 0 ? -INFINITY : INFINITY;  // so that scaled, it is -inf
    while (true) {
      shared.wait(C::kTileFull + tile.index, tile.phase);
      const BackwardTile& t = shared.tile(tile.index);
      const int4 front = ptx::load_shared_v4(shared.tile_address(tile.index));
      const int keys = front.x, first_block = front.y, end_block = first_block + front.z;
      if (keys == 0) break;
      shared.wait(C::kKFull + key_buffer.index, key_buffer.phase);
      const uint32_t k = shared.k(key_buffer.index), k_rows = k + first_key * 128,
                     v_rows = shared.v() + first_key * 128;
      const int steps = (end_block - first_block) * p.group;
      int block = first_block;
      int sum_block = front.w + first_block;  // of this step
      const bool keyless = C::is_keyless(keys, warpgroup);
      auto end_step = [&] {
        arrive(C::kStageEmpty + stage.index);
        stage.advance();
        ++sum_block;
        if (++block == end_block) {  // the next head of the group
          block = first_block;
          sum_block += p.grad_q_blocks - (end_block - first_block);
        }
      };
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const bool stores = step == 0 && unstored;
        const uint32_t rows = shared.score_grad(parity);
        parity ^= 1;
        const int i = stage.index;
        const uint32_t q = shared.q(i), grad_o = shared.grad_o(i), stats = shared.stats(i);
        float s[32], dp[32];
        uint32_t prob[16], score_grad[16];
        if (keyless) {  // no keys for this warpgroup, but columns of dQ
          if (stores) {
            stage_gradient(grad_v, 1);
            stage_gradient(grad_k, p.scale);
          }
          if (step < 2) {  // both buffers of dS
            const uint32_t zeros[16] = {};
            store_transposed<4>(rows + warpgroup * (64 * 128), zeros);
            ptx::fence_proxy_async_shared();
          }
          if (step == steps - 1) arrive(C::kVEmpty);
        } else {
          shared.wait(C::kQFull + i, stage.phase);
          ptx::wgmma_fence();
          multiply_rows<T, C::kDim, 64>(s, k_rows, C::kPanelKv, q, C::kPanelQ);
          ptx::wgmma_commit_group();
          if (step == 0) shared.wait(C::kVFull, v_phase);
          shared.wait(C::kGradOFull + i, stage.phase);
          ptx::wgmma_fence();
          multiply_rows<T, C::kDim, 64>(dp, v_rows, C::kPanelKv, grad_o, C::kPanelQ);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<1>();
          ptx::wgmma_pin<32>(s);
          if (stores) stage_gradient(grad_v, 1);
          if (keys - first_key < 64) hide_keys(s, keys - first_key, hidden);
          if constexpr (C::kMask) {
            if (cut_by_window(t, block)) hide_queries(s, t, block, hidden);
          }
          probabilities(s, p.scale_log2, stats);
          pack_probabilities<T>(s, prob);
          ptx::wgmma_fence();
          multiply_columns<T, kColumns, 64>(grad_v, prob, grad_o + column_offset(), C::kPanelQ, step > 0);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<1>();
          ptx::wgmma_pin<32>(dp);
          if (step == steps - 1) arrive(C::kVEmpty);
          score_gradients<T>(s, dp, stats, score_grad);
          if constexpr (C::kSplitColumns) {  // both warpgroups have all of it
            if (warpgroup == 0) {
              store_transposed<2>(rows, score_grad);
            } else {
              store_transposed<2>(rows + 32 * 128, score_grad + 8);
            }
          } else {
            store_transposed<4>(rows + warpgroup * (64 * 128), score_grad);
          }
          ptx::fence_proxy_async_shared();
          if (!C::kSplitColumns && stores) stage_gradient(grad_k, p.scale);
        }
        ptx::bar_sync(1, 256);
        if (keyless) {
          float sum[32];
          multiply_sum(sum, rows, k, first_piece);
          ptx::wgmma_wait_group<0>();
          ptx::wgmma_pin<32>(sum);
          stage_sum(sum);
          if (step == steps - 1) arrive(C::kKEmpty + key_buffer.index);
          end_step();
          continue;
        }
        if constexpr (C::kSplitColumns) {  // registers for one piece of dQ at a time, and for dK after them
          if (stores) stage_gradient(grad_k, p.scale);
          for (int piece = first_piece; piece < first_piece + C::kPieces; ++piece) {
            float sum[32];
            multiply_sum(sum, rows, k, piece);
            ptx::wgmma_wait_group<0>();
            ptx::wgmma_pin<32>(sum);
            stage_sum(sum);
          }
          ptx::wgmma_pin<kColumns / 2>(grad_v);
          multiply_grad_k(grad_k, score_grad, q, step);
        } else {
          float sum[32];
          const bool sums = !C::kTakeTurns || sum_block % 2 == warpgroup;
          if (sums) multiply_sum(sum, rows, k, first_piece);
          multiply_grad_k(grad_k, score_grad, q, step);
          ptx::wgmma_wait_group<1>();
          ptx::wgmma_pin<32>(sum);
          ptx::wgmma_pin<kColumns / 2>(grad_v);
          if (sums) stage_sum(sum);
        }
        if (step == steps - 1) arrive(C::kKEmpty + key_buffer.index);
        ptx::wgmma_wait_group<0>();
        ptx::wgmma_pin<kColumns / 2>(grad_k);
        end_step();
      }
      arrive(C::kTileEmpty + tile.index);
      tile.advance();
      unstored = !keyless;
      key_buffer.advance();
      v_phase ^= 1;
    }
    if (unstored) {
      stage_gradient(grad_v, 1);
      stage_gradient(grad_k, p.scale);
    }
  }
};

}  // namespace jfa::sm90
