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
  float max[2], sum[2];       // reference and sum of exponentials of the two rows
  float factors[2] = {1, 1};  // of O after a change of reference
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
    const int end = keys - block * kN - pair;
    int low = 0, high[2] = {end, end};  // low: of the first row
    if constexpr (C::kMask) {
      const ForwardTile& t = tile(count);
      const int row = t.row + warpgroup * 64 + warp * 16 + lane / 4;
      const int diagonal = row + t.diagonal - t.begin_key - block * kN - pair;
      low = diagonal - p.mask.left;
      for (int r = 0; r < 2; ++r) high[r] = min(end, diagonal + 8 * r + p.mask.right + 1);
    }
    const float sign = p.scale < 0 ? -1 : 1;
    // Without windows, the first keys of a long block are all there: a block of so few takes the short variant.
    constexpr int kFirst = !C::kMask && kKeys > C::kTailN ? C::kTailN : 0;
#pragma unroll
    for (int i = kFirst / 2; i < kKeys / 2; ++i) {
      const int column = i / 4 * 8 + i % 2, r = i % 4 / 2;
      if constexpr (C::kMask) s[i] *= sign;
      if (column >= high[r] || (C::kMask && column - 8 * r < low)) s[i] = -INFINITY;
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

  // Largest scores of row r, of this thread's columns.
  template <int kKeys>
  JFA_INLINE static float row_max(const float* s, int r) {
    float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[2 * r + 4], s[2 * r + 5]);
#pragma unroll
    for (int i = 2 * r + 8; i < kKeys / 2; i += 8) {
      a = fmaxf(fmaxf(a, s[i]), s[i + 1]);
      b = fmaxf(fmaxf(b, s[i + 4]), s[i + 5]);
    }
    return fmaxf(a, b);
  }

  // The first reference of a tile: its maximum over a block.
  template <int kKeys>
  JFA_INLINE void start_softmax(const float* s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) max[r] = quad_max(row_max<kKeys>(s, r));
  }

  // Moves the reference to the maximum of this block and those before.
  JFA_INLINE void continue_softmax(const float* s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float next = fmaxf(quad_max(row_max<kN>(s, r)), max[r]);
      factors[r] = ptx::ex2((max[r] - reference(next)) * p.scale_log2);
      sum[r] *= factors[r];
      max[r] = next;
    }
  }

  JFA_INLINE static float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }

  // A row that has seen no key yet keeps the maximum -inf, and exponentials relative to 0.
  JFA_INLINE static float reference(float max) { return C::kMask && max == -INFINITY ? 0 : max; }

  // Exponentials of S relative to the reference, packed into `prob`, and this thread's sums of them in each row.
  template <int kKeys>
  JFA_INLINE void exponentials(const float* s, uint32_t* prob, float* sums) const {
    const float offsets[2] = {-reference(max[0]) * p.scale_log2, -reference(max[1]) * p.scale_log2};
    float odd[2];
#pragma unroll
    for (int i = 0; i < kKeys / 2; i += 2) {
      const int r = i % 4 / 2;
      const float x = ptx::ex2(fmaf(s[i], p.scale_log2, offsets[r]));
      const float y = ptx::ex2(fmaf(s[i + 1], p.scale_log2, offsets[r]));
      sums[r] = i < 4 ? x : sums[r] + x;
      odd[r] = i < 4 ? y : odd[r] + y;
      prob[i / 2] = ptx::pack<typename C::T>(x, y);
    }
    sums[0] += odd[0];
    sums[1] += odd[1];
  }

  // Whether a sum of the warp is too large (or NaN). The vote also keeps the compiler from moving the exponentials
  // behind the wait for the products that they run beside.
  JFA_INLINE static bool overflows(const float* sums) {
    return __any_sync(~0u, !(fmaxf(sums[0], sums[1]) <= C::kLargestSum));
  }

  // Whether the reference 0 is too far from the scores of a first block. A thread without any key of it says so too.
  JFA_INLINE static bool out_of_range(const float* sums) {
    return __any_sync(~0u, !(fmaxf(sums[0], sums[1]) <= C::kLargestSum && fminf(sums[0], sums[1]) >= C::kSmallestSum));
  }

  JFA_INLINE void rescale() {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) o[i] *= factors[i % 4 / 2];
  }

  // Where O of a tile goes, and the factors that normalise its rows.
  struct Target {
    int rows, q_row, head, o_end;
    float inverse[2];
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
    Target target = {a.x, a.y, a.z, a.w, {}};
    auto* lse = reinterpret_cast<float*>(b);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = sum[r];
      l += __shfl_xor_sync(~0u, l, 1);
      l += __shfl_xor_sync(~0u, l, 2);
      const int row = warpgroup * 64 + warp * 16 + lane / 4 + 8 * r;
      // A row that has seen no key: -inf + log2(0).
      constexpr float kLn2 = 0.693147180559945f;
      ptx::store_global_if((b != 0) & (lane % 4 == 0) & (row < a.x), lse + lse_offset(row),
                           fmaf(max[r], p.scale_log2, ptx::lg2(l)) * kLn2);
      target.inverse[r] = C::kMask && l == 0 ? 0 : ptx::rcp(l);
    }
    return target;
  }

  // Normalises and stores O, each warp its own rows.
  JFA_INLINE void store(const Target& t) {
    const int first = warpgroup * 64 + warp * 16, row = first + lane / 4;  // of the tile
    if constexpr (C::kStoreByTma) {
      const uint32_t buffer = shared.o(4 * warpgroup + warp);
      ptx::bulk_wait_group_read<0>();
      __syncwarp();
#pragma unroll
      for (int step = 0; step < C::kDim / 16; ++step) {
        const int matrix_row = lane % 16, chunk = step % 4 * 2 + lane / 16;
        const float* x = o + 8 * step;
        ptx::stmatrix_x4(buffer + step / 4 * C::kPanelO + matrix_row * 128 + ((chunk ^ (matrix_row % 8)) * 16),
                         ptx::pack<typename C::T>(x[0] * t.inverse[0], x[1] * t.inverse[0]),
                         ptx::pack<typename C::T>(x[2] * t.inverse[1], x[3] * t.inverse[1]),
                         ptx::pack<typename C::T>(x[4] * t.inverse[0], x[5] * t.inverse[0]),
                         ptx::pack<typename C::T>(x[6] * t.inverse[1], x[7] * t.inverse[1]));
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
        const uint32_t x = ptx::pack<typename C::T>(o[4 * j] * t.inverse[0], o[4 * j + 1] * t.inverse[0]);
        const uint32_t y = ptx::pack<typename C::T>(o[4 * j + 2] * t.inverse[1], o[4 * j + 3] * t.inverse[1]);
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
    exponentials<kKeys>(s, prob, sum);
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
      max[0] = max[1] = 0;
    } else {
      start_softmax<kKeys>(s);
    }
    exponentials<kKeys>(s, next, sum);
    if (C::kZeroReference && out_of_range(sum)) {
      start_softmax<kKeys>(s);
      exponentials<kKeys>(s, next, sum);
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
    float sums[2];
    if (!exact) {
      exponentials<kN>(s, next, sums);
      exact = overflows(sums);
      if constexpr (C::kMask) exact |= __any_sync(~0u, max[0] == -INFINITY || max[1] == -INFINITY);
    }
    if (exact) {
      if (masked) mask<kN>(s, left);
      continue_softmax(s);
      exponentials<kN>(s, next, sums);
      if (overflows(sums)) ptx::nanosleep();  // NaN: nothing to be done
    }
    sum[0] += sums[0];
    sum[1] += sums[1];
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
