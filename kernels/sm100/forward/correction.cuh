// The warpgroup of the Blackwell forward that keeps O: rescales it, normalises it, stores LSE.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/forward/roles.cuh"

namespace jfa::sm100 {

// State of one thread: the same row of each group.
template <typename C>
struct Correction {
  const ForwardParams& p;
  const ForwardShared<C> shared;
  const uint32_t tmem;
  const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const uint32_t output = tmem + C::kColumnO + (thread / 32 * 32 << 16);  // O of this warp's rows of group 0
  ForwardTiles<C> tiles{shared};
  Ring<1> finished[C::kGroups];  // tiles
  Ring<C::kMessages> message[C::kGroups];

  JFA_INLINE void arrive(int place) const { shared.arrive_if(lane == 0, place); }

  JFA_INLINE float receive(int group) {
    Ring<C::kMessages>& m = message[group];
    shared.wait(C::kMessageFull + group * C::kMessages + m.index, m.phase);
    const float x = ptx::load_shared(shared.message(group, m.index) + thread * 4);
    __syncwarp();
    arrive(C::kMessageEmpty + group * C::kMessages + m.index);
    m.advance();
    return x;
  }

  // O of a group is as the next product needs it.
  JFA_INLINE void allow_output(int group) {
    ptx::tcgen05_fence_before();
    __syncwarp();
    arrive(C::kPFull + group * C::kSwitches.slices);
  }

  // Ahead of a further block. Most often, no row of the warp has a larger maximum, and O is not touched. Who sends the
  // factor has waited for the scores of that block, whose commit was for the product before, too.
  JFA_INLINE void rescale(int group) {
    const float factor = receive(group);
    if (C::kSwitches.rescale == 0 || __any_sync(~0u, factor != 1)) {
      ptx::tcgen05_fence_after();
#pragma unroll
      for (int column = 0; column < C::kDim; column += 32) {
        float o[32];
        ptx::tmem_load<32>(o, output + group * C::kDim + column);
        ptx::tmem_wait_load<32>(o);
#pragma unroll
        for (int i = 0; i < 32; ++i) o[i] *= factor;
        ptx::tmem_store<32>(output + group * C::kDim + column, o);
      }
      ptx::tmem_wait_store();
    }
    allow_output(group);
  }

  // Stores LSE, and normalised rows into shared memory; of both groups together if they have the same rows.
  JFA_INLINE void finish(int group, bool both, float* lse, int rows) {
    constexpr int kColumns = 16;  // at a time
    constexpr int kOther = C::kGroups - 1;
    float sum = receive(group), max = receive(group), scale = 1, other_scale = 0;
    if (both) {
      const float other_sum = receive(kOther), other_max = receive(kOther), most = fmaxf(max, other_max);
      scale = ptx::ex2((max - reference<C>(most)) * p.scale_log2);
      other_scale = ptx::ex2((other_max - reference<C>(most)) * p.scale_log2);
      sum = sum * scale + other_sum * other_scale;
      max = most;
    }
    const int row = group * C::kRows + thread;
    // A row that has seen no key: -inf + log2(0).
    constexpr float kLn2 = 0.693147180559945f;
    if (lse != nullptr && row < rows) lse[row] = fmaf(max, p.scale_log2, ptx::lg2(sum)) * kLn2;
    const float inverse = C::kMask && sum == 0 ? 0 : ptx::rcp(sum);
    scale *= inverse;
    other_scale *= inverse;
    shared.wait(C::kOFull + group, finished[group].phase);
    ptx::tcgen05_fence_after();
    shared.wait(C::kStagingEmpty + group, finished[group].phase ^ 1);
    finished[group].advance();
#pragma unroll
    for (int column = 0; column < C::kDim; column += kColumns) {
      float o[kColumns];
      ptx::tmem_load<kColumns>(o, output + group * C::kDim + column);
      ptx::tmem_wait_load<kColumns>(o);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) o[i] *= scale;
      if (both) {
        float other[kColumns];
        ptx::tmem_load<kColumns>(other, output + kOther * C::kDim + column);
        ptx::tmem_wait_load<kColumns>(other);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) o[i] = fmaf(other[i], other_scale, o[i]);
      }
      const uint32_t line = shared.o(group) + column / 64 * C::kPanelQ + thread * 128;
#pragma unroll
      for (int i = 0; i < kColumns; i += 8) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = ptx::pack<typename C::T>(o[i + 2 * j], o[i + 2 * j + 1]);
        ptx::store_shared4(line + (((column % 64 + i) / 8) ^ (thread % 8)) * 16, x[0], x[1], x[2], x[3]);
      }
    }
    allow_output(group);
    if (both) allow_output(kOther);
    ptx::fence_proxy_async_shared();
    __syncwarp();
    arrive(C::kStagingFull + group);
  }

  JFA_INLINE void run() {
#pragma unroll
    for (int group = 0; group < C::kGroups; ++group) allow_output(group);
    while (true) {
      const ForwardTile& tile = tiles.wait();
      const Spread<C> spread(tile);
      const int keys = tile.keys, rows = tile.rows;
      float* const lse = tile.lse;
      tiles.release_by_warp();
      if (keys == 0) break;
      for (int i = 1; i < spread.count(0); ++i) {
#pragma unroll
        for (int group = 0; group < C::kGroups; ++group) {
          if (i < spread.count(group)) rescale(group);
        }
      }
#pragma unroll
      for (int group = 0; group < C::kGroups; ++group) {
        if (group == 0 || rows > C::kRows) finish(group, group == 0 && spread.by_keys, lse, rows);
      }
    }
  }
};

}  // namespace jfa::sm100
