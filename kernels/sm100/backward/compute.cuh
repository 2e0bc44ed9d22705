// The warpgroups of the Blackwell backward between the products: P and dS, and at the end of a tile dK and dV. Their
// threads have a key each, and half of the queries of a step.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/backward/producer.cuh"

namespace jfa::sm100 {

template <typename C>
struct Compute {
  using T = typename C::T;
  static constexpr int kChunk = 32;  // columns of dP or of gradients in registers

  const BackwardParams& p;
  const BackwardMaps& maps;
  const BackwardShared<C> shared;
  const uint32_t tensor;
  const int warpgroup = ptx::uniform(threadIdx.x / 128) - 1;
  const int warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;
  const uint32_t columns = tensor + (warp * 32 << 16);  // of Tensor Memory, this warp's lanes
  const uint32_t rows = shared.score_grad_of(warpgroup) + warp * (32 * 128);
  uint32_t steps = 0, passes = 0;

  JFA_INLINE void run() {
    BackwardTiles<C> tiles{shared};
    while (true) {
      const BackwardTile& t = tiles.wait();
      if (ptx::uniform(t.keys) == 0) break;
      const int blocks = ptx::uniform(t.blocks), count = steps_of<C>(t) * p.group;
#pragma unroll 1
      for (int pass = 0; pass < C::kPasses; ++pass) {
        int block = 0;
#pragma unroll 1
        for (int step = 0; step < count; ++step) {
          const Window window(p, t, block, warpgroup, warp * 32 + lane);
          if (!C::kSwitches.peel || window.cuts) {
            run_step<true>(window, step == 0);
          } else {
            run_step<false>(window, step == 0);
          }
          block += C::kBlocks;
          if (block >= blocks) block = 0;
        }
        store_gradients(t, pass);
      }
      tiles.release_by_warp();
    }
    if (ptx::elect()) ptx::bulk_wait_group<0>();
  }

  struct Window {
    int low, high;  // the columns of this thread's scores that its key is seen by, both included
    bool cuts;      // some key of the tile is not seen by some query

    JFA_INLINE Window(const BackwardParams& p, const BackwardTile& t, int block, int warpgroup, int row) {
      const int first = block * kStatRows + warpgroup * C::kHalf, queries = t.blocks * kStatRows;
      const int query = t.first_block * kStatRows + first, key = t.key - t.diagonal;
      low = row < t.keys ? key + row - p.mask.right - query : C::kHalf;
      high = min(key + row + p.mask.left - query, queries - 1 - first);
      cuts = t.keys < C::kBlockN || first + C::kHalf > queries || p.mask.cuts(query, C::kHalf, key, C::kBlockN);
    }
  };

  JFA_INLINE void wait(int barrier, uint32_t parity) const {
    shared.wait(barrier, parity);
    ptx::tcgen05_fence_after();
  }

  // LSE of four queries from `column` on, delta 64 further on.
  JFA_INLINE void load_stats(float* x, int column) const {
    const int of_step = (warpgroup * C::kHalf) / kStatRows * (2 * kStatRows) + (warpgroup * C::kHalf) % kStatRows;
    const int4 bits = ptx::load_shared_v4(shared.stats(steps & 1) + (of_step + column) * 4);
    x[0] = __int_as_float(bits.x), x[1] = __int_as_float(bits.y);
    x[2] = __int_as_float(bits.z), x[3] = __int_as_float(bits.w);
  }

  // Writes 16-bit values from `column` on of this thread's row in shared memory, 8 kChunks of them.
  template <int kChunks>
  JFA_INLINE void store_row(int column, const uint32_t* packed) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const uint32_t* x = packed + 4 * i;
      ptx::store_shared4(rows + lane * 128 + ((column / 8 + i) ^ (lane % 8)) * 16, x[0], x[1], x[2], x[3]);
    }
  }

  template <bool kCut>
  JFA_INLINE void run_step(const Window& window, bool first) {
    float s[C::kHalf], stats[4];
    uint32_t packed[C::kHalf / 2];
    shared.wait(C::kStatsFull + (steps & 1), steps >> 1 & 1);
    wait(C::kScoresFull, steps & 1);
    ptx::tmem_load<C::kHalf>(s, columns + C::kTensorS + warpgroup * C::kHalf);
    ptx::tmem_wait_load<C::kHalf>(s);
    if constexpr (C::kPair) {
      hand_over(shared, C::kScoresRead);
      meet();  // P of one warpgroup goes to columns that the other reads
    }
#pragma unroll
    for (int column = 0; column < C::kHalf; column += kChunk) {
#pragma unroll
      for (int i = column; i < column + kChunk; i += 2) {
        if (i % 4 == 0) load_stats(stats, i);
        const float scale = -p.scale_log2;
        const float2 x = ptx::fma2({s[i], s[i + 1]}, {scale, scale}, {stats[i % 4], stats[i % 4 + 1]});
        s[i] = kCut && (i < window.low || i > window.high) ? 0 : ptx::ex2(-x.x);
        s[i + 1] = kCut && (i + 1 < window.low || i + 1 > window.high) ? 0 : ptx::ex2(-x.y);
        packed[i / 2] = ptx::pack<T>(s[i], s[i + 1]);
      }
      ptx::tmem_store<kChunk / 2>(columns + C::kTensorS + warpgroup * C::kProbPitch + column / 2, packed + column / 2);
    }
    ptx::tmem_wait_store();
    hand_over(shared, C::kProbFull);
    wait(C::kGradPFull, steps & 1);
#pragma unroll
    for (int column = 0; column < C::kHalf; column += kChunk) {
      float dp[kChunk];
      ptx::tmem_load<kChunk>(dp, columns + C::kTensorGradP + warpgroup * C::kHalf + column);
      ptx::tmem_wait_load<kChunk>(dp);
#pragma unroll
      for (int i = 0; i < kChunk; i += 2) {
        if (i % 4 == 0) load_stats(stats, column + i + kStatRows);
        const float2 x = ptx::fma2({stats[i % 4], stats[i % 4 + 1]}, {-1, -1}, {dp[i], dp[i + 1]});
        packed[(column + i) / 2] = ptx::pack<T>(s[column + i] * x.x, s[column + i + 1] * x.y);
      }
    }
    __syncwarp();
    shared.arrive_if(lane == 0, C::kStatsEmpty + (steps & 1));
    if constexpr (C::kPair) {
      ptx::tmem_store<C::kHalf / 2>(columns + C::kTensorGradP + warpgroup * C::kHalf, packed);
      ptx::tmem_wait_store();
      hand_over(shared, C::kOperandFull);
    }
    wait(C::kScoreGradEmpty, steps & 1 ^ 1);
    wait_sent();
    if (first) wait_stores();
    store_row<C::kHalf / 8>(C::kBlockM == 64 ? warpgroup * C::kHalf : 0, packed);
    ptx::fence_proxy_async_shared();
    if (!C::kPair || warpgroup == shared.rank) {
      hand_over(shared, C::kScoreGradFull);
    } else {
      __syncwarp();
      if (ptx::elect()) {
        const uint32_t to = shared.score_grad() + shared.rank * C::kPanelKv + warp * (32 * 128);
        ptx::bulk_send(ptx::map_shared(to, shared.rank ^ 1), rows, 32 * 128,
                       ptx::map_shared(shared.barrier(C::kPeerFull), shared.rank ^ 1));
      }
    }
    ++steps;
  }

  // Waits until the rows that this warp sent to the other CTA are there.
  JFA_INLINE void wait_sent() const {
    if (C::kPair && warpgroup != shared.rank) {
      ptx::mbarrier_wait_cluster(shared.barrier(C::kSent), steps & 1 ^ 1);
    }
  }

  // Waits until this warp's rows may be written: stores have read them.
  JFA_INLINE void wait_stores() const {
    if (ptx::elect()) ptx::bulk_wait_group_read<0>();
    __syncwarp();
  }

  // Orders what this warp and that of the other warpgroup with the same keys do to their rows.
  JFA_INLINE void meet() const { ptx::bar_sync(1 + warp, 64); }

  // Stores dV, then dK, of a pass; two warpgroups share them.
  JFA_INLINE void store_gradients(const BackwardTile& t, int pass) {
    wait(C::kGradientsFull, passes & 1);
    wait_sent();
    if (C::kStorers == 1) meet();
#pragma unroll 1
    for (int gradient = warpgroup; gradient < 2 && warpgroup < C::kStorers; gradient += C::kStorers) {
      const bool is_k = gradient == 1;
      const float factor = is_k ? p.scale : 1;
      const int add = p.accumulate & (is_k ? BackwardParams::kAccumulateK : BackwardParams::kAccumulateV);
#pragma unroll 1
      for (int panel = 0; panel < C::kColumns / 64; ++panel) {
        wait_stores();
#pragma unroll
        for (int column = 0; column < 64; column += kChunk) {
          float x[kChunk];
          uint32_t packed[kChunk / 2];
          ptx::tmem_load<kChunk>(x, columns + (is_k ? C::kTensorGradK : C::kTensorGradV) + panel * 64 + column);
          ptx::tmem_wait_load<kChunk>(x);
#pragma unroll
          for (int i = 0; i < kChunk / 2; ++i) packed[i] = ptx::pack<T>(x[2 * i] * factor, x[2 * i + 1] * factor);
          store_row<kChunk / 8>(column, packed);
        }
        ptx::fence_proxy_async_shared();
        __syncwarp();
        const int all = pass * (C::kColumns / 64) + panel;
        if (all * 64 < p.head_dim && t.keys > 0 && ptx::elect()) {
          const GradientRows to = {t.kv_row + warp * 32, t.head, t.kv_end};
          store_box(rows, is_k ? maps.grad_k : maps.grad_v, all, p.head_dim, to, add);
          ptx::bulk_commit_group();
        }
      }
    }
    if (C::kStorers == 1) {
      wait_stores();
      meet();
    }
    hand_over(shared, C::kGradientsEmpty);
    ++passes;
  }
};

}  // namespace jfa::sm100
