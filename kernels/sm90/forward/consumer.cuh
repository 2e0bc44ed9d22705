// The warpgroups of the Hopper forward that multiply: S = Q K^T, softmax, O += P V, streaming across tiles.
#pragma once

#include "ptx/math.cuh"
#include "ptx/sync.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"
#include "sm90/forward/producer.cuh"

namespace jfa::sm90 {

// State of one thread of a consumer warpgroup. It holds two rows of the warpgroup's 64: row 16 w + lane / 4 of warp w
// and the one eight below, and of these the columns 8 j + 2 (lane % 4) + {0, 1}.
template <typename C>
struct Consumer {
  static constexpr int kN = C::kBlockN;
  static constexpr int kPvN = C::kDim % 128 == 0 ? 128 : 64;
  static constexpr int kFirstBarrier = 1;  // named barriers: turns of the warpgroups

  const ForwardParams& p;
  const CUtensorMap& map_o;
  const ForwardShared<C> shared;
  const int warpgroup, warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;
  // Descriptors of slot 0, as K and as V.
  const uint32_t first_k = ptx::wgmma_descriptor_low(shared.slot(0), 16);
  const uint32_t first_v = ptx::wgmma_descriptor_low(shared.slot(0), C::kPanelKv);

  float o[C::kDim / 2] = {};
  float max0, max1, sum0, sum1;      // reference and sum of exponentials of the two rows
  float rescale0 = 1, rescale1 = 1;  // factors of O after a change of reference
  Ring<C::kSlots> slot;
  uint32_t count = ~0u;  // the tile whose scores are computed
  uint32_t q_count = 0;  // Q blocks taken
  uint32_t q = 0;        // descriptor of the Q block
  int keys = 0;          // of the tile
  int next_keys = 0, next_new_q = 0;
  int left = 0;          // blocks of the tile still to come
  int accumulate = 0;    // O holds earlier blocks of its tile
  bool short_p = false;  // P has kTailN keys

  JFA_INLINE void arrive(int barrier) const { shared.arrive_if(lane == 0, barrier); }

  // Tile `index` of the list, while it is in the ring.
  JFA_INLINE const ForwardTile& tile(uint32_t index) const { return shared.tile(index % C::kTiles); }

  JFA_INLINE int wait_slot() {
    const int index = slot.index;
    shared.wait(C::kSlotFull + index, slot.phase);
    slot.advance();
    return index;
  }

  // Looks at the tile after `count`, early enough that nothing waits for it.
  JFA_INLINE void peek() {
    const uint32_t next = count + 1;
    shared.wait(C::kTileFull + next % C::kTiles, next / C::kTiles % 2);
    const int4 header = ptx::load_shared_v4(shared.tile_address(next % C::kTiles));
    next_keys = header.x;
    next_new_q = header.y;
  }

  // Goes to the tile that `peek` has seen, and takes its Q if it is another one; false at the end of the list.
  JFA_INLINE bool next_tile() {
    ++count;
    keys = next_keys;
    if (keys == 0) return false;
    left = (keys - 1) / kN;
    if (next_new_q) {
      if (q_count > 0) arrive(C::kQEmpty + (q_count - 1) % C::kQBuffers);  // every product with it is complete
      shared.wait(C::kQFull + q_count % C::kQBuffers, q_count / C::kQBuffers % 2);
      q = ptx::wgmma_descriptor_low(shared.q(q_count % C::kQBuffers) + warpgroup * 64 * 128, 16);
      ++q_count;
    }
    return true;
  }

  template <int kKeys>
  JFA_INLINE void issue_scores(float* s, int index) {
    const uint32_t k = first_k + index * (C::kBytesSlot / 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      const uint32_t inner = step % 4 * 2;
      ptx::wgmma_ss<typename C::T, kKeys>(s, ptx::wgmma_descriptor(q + step / 4 * (C::kPanelQ / 16) + inner),
                                          ptx::wgmma_descriptor(k + step / 4 * (C::kPanelKv / 16) + inner), step > 0);
    }
    ptx::wgmma_commit_group();
  }

  template <int kKeys>
  JFA_INLINE void issue_output(const uint32_t* prob, int index, int keep) {
    const uint32_t v = first_v + index * (C::kBytesSlot / 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int column = 0; column < C::kDim; column += kPvN) {
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step) {
        ptx::wgmma_rs<typename C::T, kPvN>(
            o + column / 2, prob + 4 * step,
            ptx::wgmma_descriptor(v + column / 64 * (C::kPanelKv / 16) + step * (2048 / 16)), step > 0 ? 1 : keep);
      }
    }
    ptx::wgmma_commit_group();
  }

  // O += P V for the block before; returns the slot of V.
  JFA_INLINE int issue_output(const uint32_t* prob) {
    const int index = wait_slot();
    if (short_p) {
      issue_output<C::kTailN>(prob, index, 0);
    } else {
      issue_output<kN>(prob, index, accumulate);
    }
    return index;
  }

  // Hides what this block's rows do not see: keys at and beyond the end, and outside the window. A negative scale is
  // taken into S, so that the largest score has the largest exponential.
  template <int kKeys>
  JFA_INLINE void mask(float* s, int block) const {
    const int pair = lane % 4 * 2;  // first column of this thread
    int high0 = keys - block * kN - pair, high1 = high0, low0 = 0, low1 = 0;
    if constexpr (C::kMask) {
      const ForwardTile& t = tile(count);
      const int row = t.row + warpgroup * 64 + warp * 16 + lane / 4;
      const int diagonal = row + t.diagonal - t.begin_key - block * kN - pair;
      low0 = diagonal - p.mask.left;
      low1 = low0 + 8;
      high1 = min(high0, diagonal + 8 + p.mask.right + 1);
      high0 = min(high0, diagonal + p.mask.right + 1);
    }
    const float sign = p.scale < 0 ? -1 : 1;
    // Without windows, the first keys of a long block are all there: a block of so few takes the short variant.
    constexpr int kFirst = !C::kMask && kKeys > C::kTailN ? C::kTailN : 0;
#pragma unroll
    for (int i = kFirst / 2; i < kKeys / 2; ++i) {
      const int column = i / 4 * 8 + i % 2;
      const bool second = i % 4 >= 2;
      const bool hidden = column >= (second ? high1 : high0) || (C::kMask && column < (second ? low1 : low0));
      if constexpr (C::kMask) s[i] *= sign;
      if (hidden) s[i] = -INFINITY;
    }
  }

  // Whether some row of the warpgroup misses some key of a block, or the scale is negative.
  JFA_INLINE bool needs_mask(int block) const {
    if (keys - block * kN < kN) return true;
    if constexpr (C::kMask) {
      const ForwardTile& t = tile(count);
      return p.scale < 0 || p.mask.cuts(t.row + warpgroup * 64 + t.diagonal, 64, t.begin_key + block * kN, kN);
    }
    return false;
  }

  // Largest scores of this thread's columns.
  template <int kKeys>
  JFA_INLINE static void thread_max(const float* s, float& a0, float& a1) {
    a0 = fmaxf(s[0], s[1]);
    a1 = fmaxf(s[2], s[3]);
    float b0 = fmaxf(s[4], s[5]), b1 = fmaxf(s[6], s[7]);
#pragma unroll
    for (int j = 2; j < kKeys / 8; j += 2) {
      a0 = fmaxf(fmaxf(a0, s[4 * j]), s[4 * j + 1]);
      a1 = fmaxf(fmaxf(a1, s[4 * j + 2]), s[4 * j + 3]);
      b0 = fmaxf(fmaxf(b0, s[4 * j + 4]), s[4 * j + 5]);
      b1 = fmaxf(fmaxf(b1, s[4 * j + 6]), s[4 * j + 7]);
    }
    a0 = fmaxf(a0, b0);
    a1 = fmaxf(a1, b1);
  }

  // The first reference of a tile: its maximum over a block.
  template <int kKeys>
  JFA_INLINE void start_softmax(const float* s) {
    thread_max<kKeys>(s, max0, max1);
    max0 = quad_max(max0);
    max1 = quad_max(max1);
  }

  // Moves the reference to the maximum of this block and those before.
  JFA_INLINE void continue_softmax(const float* s) {
    float a0, a1;
    thread_max<kN>(s, a0, a1);
    a0 = fmaxf(quad_max(a0), max0);
    a1 = fmaxf(quad_max(a1), max1);
    rescale0 = ptx::ex2((max0 - reference(a0)) * p.scale_log2);
    rescale1 = ptx::ex2((max1 - reference(a1)) * p.scale_log2);
    sum0 *= rescale0;
    sum1 *= rescale1;
    max0 = a0;
    max1 = a1;
  }

  JFA_INLINE static float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }

  // A row that has seen no key yet keeps the maximum -inf, and exponentials relative to 0.
  JFA_INLINE static float reference(float max) { return C::kMask && max == -INFINITY ? 0 : max; }

  // Exponentials of S relative to the reference, packed into `prob`, and this thread's sums of them.
  template <int kKeys>
  JFA_INLINE void exponentials(const float* s, uint32_t* prob, float& x, float& y) const {
    const float offset0 = -reference(max0) * p.scale_log2, offset1 = -reference(max1) * p.scale_log2;
    float x_odd, y_odd;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const float x0 = ptx::ex2(fmaf(s[4 * j], p.scale_log2, offset0));
      const float x1 = ptx::ex2(fmaf(s[4 * j + 1], p.scale_log2, offset0));
      const float y0 = ptx::ex2(fmaf(s[4 * j + 2], p.scale_log2, offset1));
      const float y1 = ptx::ex2(fmaf(s[4 * j + 3], p.scale_log2, offset1));
      x = j == 0 ? x0 : x + x0;
      x_odd = j == 0 ? x1 : x_odd + x1;
      y = j == 0 ? y0 : y + y0;
      y_odd = j == 0 ? y1 : y_odd + y1;
      prob[2 * j] = ptx::pack<typename C::T>(x0, x1);
      prob[2 * j + 1] = ptx::pack<typename C::T>(y0, y1);
    }
    x += x_odd;
    y += y_odd;
  }

  // Whether a sum of the warp is too large (or NaN). The vote also keeps the compiler from moving the exponentials
  // behind the wait for the products that they run beside.
  JFA_INLINE static bool overflows(float x, float y) { return __any_sync(~0u, !(fmaxf(x, y) <= C::kLargestSum)); }

  // Whether the reference 0 is too far from the scores of a first block. A thread without any key of it says so too.
  JFA_INLINE static bool out_of_range(float x, float y) {
    return __any_sync(~0u, !(fmaxf(x, y) <= C::kLargestSum && fminf(x, y) >= C::kSmallestSum));
  }

  JFA_INLINE void rescale() {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) o[i] *= i % 4 < 2 ? rescale0 : rescale1;
  }

  // Where O of a tile goes, and the factors that normalise its rows.
  struct Target {
    int rows, q_row, head, o_end;
    float inverse0, inverse1;
  };

  // Where the LSE of a row of a tile lies.
  JFA_INLINE int64_t lse_offset(int row) const {
    if constexpr (!C::kPack) return row;
    return (row & ((1 << p.pack_shift) - 1)) * p.lse_head_stride + (row >> p.pack_shift);
  }

  // Ends tile `index` of the list but for O: stores LSE, and reads its description for the last time. It has the time
  // while the next scores are computed.
  JFA_INLINE Target finish(uint32_t index) const {
    const uint32_t address = shared.tile_address(index % C::kTiles);
    const int4 a = ptx::load_shared_v4(address + offsetof(ForwardTile, rows));
    const uint64_t b = ptx::load_shared_u64(address + offsetof(ForwardTile, lse));
    __syncwarp();
    arrive(C::kTileEmpty + index % C::kTiles);
    float l0 = sum0, l1 = sum1;
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
      l0 += __shfl_xor_sync(~0u, l0, distance);
      l1 += __shfl_xor_sync(~0u, l1, distance);
    }
    auto* lse = reinterpret_cast<float*>(b);
    const bool writes = (b != 0) & (lane % 4 == 0);
    const int row = warpgroup * 64 + warp * 16 + lane / 4;
    // A row that has seen no key: -inf + log2(0).
    constexpr float kLn2 = 0.693147180559945f;
    ptx::store_global_if(writes & (row < a.x), lse + lse_offset(row), fmaf(max0, p.scale_log2, ptx::lg2(l0)) * kLn2);
    ptx::store_global_if(writes & (row + 8 < a.x), lse + lse_offset(row + 8),
                         fmaf(max1, p.scale_log2, ptx::lg2(l1)) * kLn2);
    const bool none0 = C::kMask && l0 == 0, none1 = C::kMask && l1 == 0;
    return {a.x, a.y, a.z, a.w, none0 ? 0 : ptx::rcp(l0), none1 ? 0 : ptx::rcp(l1)};
  }

  // Normalises and stores O, each warp its own rows.
  JFA_INLINE void store(const Target& t) {
    const int first = warpgroup * 64 + warp * 16, row = first + lane / 4;  // of the tile
    const float inverse0 = t.inverse0, inverse1 = t.inverse1;
    if constexpr (C::kStoreByTma) {
      const uint32_t buffer = shared.o(4 * warpgroup + warp);
      ptx::bulk_wait_group_read<0>();
      __syncwarp();
#pragma unroll
      for (int step = 0; step < C::kDim / 16; ++step) {
        const int matrix_row = lane % 16, chunk = step % 4 * 2 + lane / 16;
        const float* x = o + 8 * step;
        ptx::stmatrix_x4(buffer + step / 4 * C::kPanelO + matrix_row * 128 + ((chunk ^ (matrix_row % 8)) * 16),
                         ptx::pack<typename C::T>(x[0] * inverse0, x[1] * inverse0),
                         ptx::pack<typename C::T>(x[2] * inverse1, x[3] * inverse1),
                         ptx::pack<typename C::T>(x[4] * inverse0, x[5] * inverse0),
                         ptx::pack<typename C::T>(x[6] * inverse1, x[7] * inverse1));
      }
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0 && first < t.rows) {
#pragma unroll 1
        for (int box = 0; box < (C::kPack ? C::kPanels : p.panel_boxes); ++box) {
          const int row = t.q_row + (C::kPack ? first >> p.pack_shift : first);
          ptx::tma_store(map_o, buffer + box * C::kPanelO, box * 64, C::kPack ? 0 : row, C::kPack ? row : 0, t.head,
                         t.o_end);
        }
        ptx::bulk_commit_group();
      }
      __syncwarp();  // else the compiler takes all that follows for divergent
    } else {
      const int64_t o_row = static_cast<int64_t>(t.o_end) - t.rows + row;
      auto* base = static_cast<typename C::T*>(p.o) + t.head * p.o_head_stride + o_row * p.o_row_stride;
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        if (8 * j >= p.head_dim) break;
        const int column = 8 * j + lane % 4 * 2;
        const uint32_t x = ptx::pack<typename C::T>(o[4 * j] * inverse0, o[4 * j + 1] * inverse0);
        const uint32_t y = ptx::pack<typename C::T>(o[4 * j + 2] * inverse1, o[4 * j + 3] * inverse1);
        if (row < t.rows) *reinterpret_cast<uint32_t*>(base + column) = x;
        if (row + 8 < t.rows) *reinterpret_cast<uint32_t*>(base + 8 * p.o_row_stride + column) = y;
      }
    }
  }

  // The first block of the first tile: nothing to overlap with.
  template <int kKeys>
  JFA_INLINE void start(uint32_t* prob) {
    float s[kKeys / 2];
    const int k = wait_slot();
    issue_scores<kKeys>(s, k);
    if (left == 0) peek();
    ptx::wgmma_wait_group<0>();
    arrive(C::kSlotEmpty + k);
    if (needs_mask(left)) mask<kKeys>(s, left);
    start_softmax<kKeys>(s);
    exponentials<kKeys>(s, prob, sum0, sum1);
    short_p = kKeys != kN;
    accumulate = 0;
  }

  JFA_INLINE void take_turn() {
    if constexpr (C::kWarpgroups == 2) ptx::bar_sync(kFirstBarrier + warpgroup, 256);
  }

  JFA_INLINE void pass_turn() {
    if constexpr (C::kWarpgroups == 2) ptx::bar_arrive(kFirstBarrier + 1 - warpgroup, 256);
  }

  // The first block of a tile, beside the last product of the tile before.
  template <int kKeys>
  JFA_INLINE void cross(const uint32_t* prob, uint32_t* next) {
    float s[kKeys / 2];
    const int k = wait_slot();
    take_turn();
    issue_scores<kKeys>(s, k);
    const int v = issue_output(prob);
    pass_turn();
    const Target target = finish(count - 1);
    if (left == 0) peek();
    ptx::wgmma_wait_group<1>();
    arrive(C::kSlotEmpty + k);
    if (needs_mask(left)) mask<kKeys>(s, left);
    if constexpr (C::kZeroReference) {
      max0 = max1 = 0;
    } else {
      start_softmax<kKeys>(s);
    }
    exponentials<kKeys>(s, next, sum0, sum1);
    if (C::kZeroReference && out_of_range(sum0, sum1)) {
      start_softmax<kKeys>(s);
      exponentials<kKeys>(s, next, sum0, sum1);
    }
    ptx::wgmma_wait_group<0>();
    arrive(C::kSlotEmpty + v);
    store(target);
    accumulate = 0;
    short_p = kKeys != kN;
  }

  // A further block of a tile, beside the product of the block before.
  JFA_INLINE void proceed(const uint32_t* prob, uint32_t* next) {
    float s[kN / 2];
    const int k = wait_slot();
    take_turn();
    issue_scores<kN>(s, k);
    const int v = issue_output(prob);
    pass_turn();
    if (--left == 0) peek();
    ptx::wgmma_wait_group<1>();
    arrive(C::kSlotEmpty + k);
    const bool masked = C::kMask && needs_mask(left);
    // Any reference is exact as long as nothing overflows: the one of earlier blocks is tried first.
    bool exact = !C::kOptimistic || masked;
    float x, y;
    if (!exact) {
      exponentials<kN>(s, next, x, y);
      exact = overflows(x, y);
      if constexpr (C::kMask) exact |= __any_sync(~0u, max0 == -INFINITY || max1 == -INFINITY);
    }
    if (exact) {
      if (masked) mask<kN>(s, left);
      continue_softmax(s);
      exponentials<kN>(s, next, x, y);
      if (overflows(x, y)) ptx::nanosleep();  // NaN: nothing to be done
    }
    sum0 += x;
    sum1 += y;
    ptx::wgmma_wait_group<0>();
    arrive(C::kSlotEmpty + v);
    if (exact) rescale();
    accumulate = 1;
    short_p = false;
  }

  JFA_INLINE bool is_short() const { return keys - left * kN <= C::kTailN && C::kTailN < kN; }

  // One block: its scores and softmax into `next`, and the product with `prob`, the block before; false at the end.
  JFA_INLINE bool step(const uint32_t* prob, uint32_t* next) {
    if (left > 0) {
      proceed(prob, next);
      return true;
    }
    if (!next_tile()) {
      const int v = issue_output(prob);
      ptx::wgmma_wait_group<0>();
      arrive(C::kSlotEmpty + v);
      store(finish(count - 1));
      return false;
    }
    if (is_short()) {
      cross<C::kTailN>(prob, next);
    } else {
      cross<kN>(prob, next);
    }
    return true;
  }

  JFA_INLINE void run() {
    peek();
    if (!next_tile()) return;
    uint32_t p0[kN / 4], p1[kN / 4];
    if (C::kWarpgroups == 2 && warpgroup == 1) pass_turn();
    if (is_short()) {
      start<C::kTailN>(p0);
    } else {
      start<kN>(p0);
    }
    while (step(p0, p1) && step(p1, p0)) {
    }
    if (C::kWarpgroups == 2 && warpgroup == 0) take_turn();  // leaves no arrival behind
    if (C::kStoreByTma) ptx::bulk_wait_group<0>();
  }
};

}  // namespace jfa::sm90
