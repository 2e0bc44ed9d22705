// The softmax warpgroups of the Blackwell forward: S from Tensor Memory, P back into it.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/forward/roles.cuh"

namespace jfa::sm100 {

// State of one thread: one row of its group, all its columns.
template <typename C>
struct Softmax {
  static constexpr int kN = C::kBlockN;

  const ForwardParams& p;
  const ForwardShared<C> shared;
  const uint32_t tmem;
  const int group, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const uint32_t scores = tmem + group * C::kColumnsS + (thread / 32 * 32 << 16);  // S of this warp's rows
  ForwardTiles<C> tiles{shared};
  Ring<1> s_full;
  Ring<C::kMessages> message;
  float max, sum;      // reference and sum of exponentials
  int keys, diagonal;  // of the tile, and the first key on the diagonal of its first query, counted from its first key

  // To the thread of the correction that has the same row.
  JFA_INLINE void send(float x) {
    const int place = group * C::kMessages + message.index;
    shared.wait(C::kMessageEmpty + place, message.phase ^ 1);
    ptx::store_shared(shared.message(group, message.index) + thread * 4, x);
    __syncwarp();
    shared.arrive_if(lane == 0, C::kMessageFull + place);
    message.advance();
  }

  // Hides what the row does not see. A negative scale is taken into S, so that the largest score has the largest
  // exponential.
  JFA_INLINE void mask(float* s, int block) const {
    const int on = diagonal + thread - block * kN;
    const int low = C::kMask ? on - p.mask.left : 0;
    const int high = C::kMask ? min(keys - block * kN, on + p.mask.right + 1) : keys - block * kN;
    const float sign = p.scale < 0 ? -1 : 1;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if constexpr (C::kMask) s[i] *= sign;
      if (i >= high || (C::kMask && i < low)) s[i] = -INFINITY;
    }
  }

  // Whether some row of the warp misses some key of a block, or the scale is negative.
  JFA_INLINE bool needs_mask(int block) const {
    if (!C::kSwitches.peel || keys - block * kN < kN) return true;
    if constexpr (C::kMask) {
      return p.scale < 0 || p.mask.cuts(diagonal + thread / 32 * 32, 32, block * kN, kN);
    }
    return false;
  }

  JFA_INLINE static float largest(const float* s) {
    float a = fmaxf(s[0], s[1]), b = fmaxf(s[2], s[3]);
#pragma unroll
    for (int i = 4; i < kN; i += 4) {
      a = fmaxf(fmaxf(a, s[i]), s[i + 1]);
      b = fmaxf(fmaxf(b, s[i + 2]), s[i + 3]);
    }
    return fmaxf(a, b);
  }

  // One block; `first` of its tile.
  template <bool kMasked>
  JFA_INLINE void step(int block, bool first) {
    float s[kN];
#pragma unroll
    for (int i = 0; i < kN; i += 32) ptx::tmem_load<32>(s + i, scores + i);
    ptx::tmem_wait_load<kN>(s);
    if constexpr (kMasked) mask(s, block);
    const float most = largest(s);
    if (first) {
      max = most;
      sum = 0;
    } else {
      const float next = fmaxf(max, most);
      float factor = 1;
      if ((next - max) * p.scale_log2 > C::kSwitches.rescale) {
        factor = ptx::ex2((max - reference<C>(next)) * p.scale_log2);
        max = next;
      }
      sum *= factor;
      send(factor);
    }
    const float offset = -reference<C>(max) * p.scale_log2;
    float2 even = {0, 0}, odd = {0, 0};
    constexpr int kColumns = 32;  // at a time
#pragma unroll
    for (int column = 0; column < kN; column += kColumns) {
      uint32_t prob[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns; i += 2) {
        const float* x = s + column + i;
        float2 y = ptx::fma2({x[0], x[1]}, {p.scale_log2, p.scale_log2}, {offset, offset});
        if (!kMasked && i % 16 >= 16 - C::kSwitches.exp2_fma) {
          y = ptx::ex2_fma(y);
        } else {
          y = {ptx::ex2(y.x), ptx::ex2(y.y)};
        }
        (i % 4 == 0 ? even : odd) = ptx::add2(i % 4 == 0 ? even : odd, y);
        prob[i / 2] = ptx::pack<typename C::T>(y.x, y.y);
      }
      ptx::tmem_store<kColumns / 2>(scores + column / 2, prob);
      if ((column + kColumns) % (kN / C::kSwitches.slices) != 0) continue;
      ptx::tmem_wait_store();
      ptx::tcgen05_fence_before();
      __syncwarp();
      shared.arrive_if(lane == 0, C::kPFull + group * C::kSwitches.slices + column / (kN / C::kSwitches.slices));
    }
    const float2 both = ptx::add2(even, odd);
    sum += both.x + both.y;
  }

  JFA_INLINE void run() {
    while (true) {
      const ForwardTile& tile = tiles.wait();
      const Spread<C> spread(tile);
      keys = tile.keys;
      diagonal = tile.row + spread.row(group) + tile.diagonal - tile.begin_key;
      tiles.release_by_warp();
      if (keys == 0) break;
      if (group >= spread.groups) continue;
      const int stride = spread.by_keys ? 2 : 1;
      bool first = true;
      for (int block = spread.block(group); block >= 0; block -= stride) {
        shared.wait(C::kSFull + group, s_full.phase);
        s_full.advance();
        ptx::tcgen05_fence_after();
        if (needs_mask(block)) {
          step<true>(block, first);
        } else {
          step<false>(block, first);
        }
        first = false;
      }
      send(sum);
      send(max);
    }
  }
};

}  // namespace jfa::sm100
