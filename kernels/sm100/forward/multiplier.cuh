// The thread of the Blackwell forward that issues products: S = Q K^T and O += P V, streaming across tiles.
#pragma once

#include "ptx/tcgen05.cuh"
#include "sm100/forward/roles.cuh"

namespace jfa::sm100 {

template <typename C>
struct Multiplier {
  using T = typename C::T;
  static constexpr uint32_t kScores = ptx::mma_descriptor<T>(C::kRows, C::kBlockN);
  static constexpr uint32_t kOutput = ptx::mma_descriptor<T>(C::kRows, C::kDim, false, true);

  const ForwardShared<C> shared;
  const uint32_t tmem;
  const uint32_t q, k, v;  // descriptors of group 0 and of slot 0, as K and as V
  Tiles<C> tiles;
  Ring<C::kSlots> slot;
  Ring<1> q_full[C::kGroups];
  Ring<1> p_full[C::kGroups];
  int left = 0;    // blocks of the tile still to come
  int groups = 0;  // of the tile whose scores are issued
  int tile = 0;    // its place

  JFA_INLINE Multiplier(ForwardShared<C> smem, uint32_t columns)
      : shared(smem),
        tmem(columns),
        q(ptx::smem_descriptor_low(smem.q(0), 16)),
        k(ptx::smem_descriptor_low(smem.slot(0), 16)),
        v(ptx::smem_descriptor_low(smem.slot(0), C::kPanelKv)),
        tiles(smem) {}

  JFA_INLINE void commit(int place) const {
    if (ptx::elect()) ptx::mma_commit<1>(shared.barrier(place));
  }

  JFA_INLINE int wait_slot() {
    const int index = slot.index;
    ptx::mbarrier_wait(shared.barrier(C::kSlotFull + index), slot.phase);
    slot.advance();
    return index;
  }

  // Goes to the next block, and takes its Q if it is another one; false at the end of the list.
  JFA_INLINE bool next_block() {
    if (left > 0) {
      --left;
      return true;
    }
    const ForwardTile& t = tiles.wait();
    const int keys = t.keys, new_q = t.new_q, rows = t.rows;
    tile = tiles.ring.index;
    __syncwarp();
    tiles.release(threadIdx.x % 32 == 0);
    if (keys == 0) return false;
    left = (keys - 1) / C::kBlockN;
    groups = groups_of<C>(rows);
    if (new_q) {
#pragma unroll
      for (int group = 0; group < C::kGroups; ++group) {
        if (group >= groups) break;
        ptx::mbarrier_wait(shared.barrier(C::kQFull + group), q_full[group].phase);
        q_full[group].advance();
      }
    }
    return true;
  }

  // S = Q K^T of a group.
  JFA_INLINE void issue_scores(int group, int index) const {
    if (!ptx::elect()) return;
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      const uint32_t inner = step % 4 * 2;
      ptx::mma_ss<1>(tmem + group * C::kColumnsS,
                     ptx::smem_descriptor(q + group * (C::kBytesQ / 16) + step / 4 * (C::kPanelQ / 16) + inner),
                     ptx::smem_descriptor(k + index * (C::kBytesSlot / 16) + step / 4 * (C::kPanelKv / 16) + inner),
                     kScores, step > 0);
    }
  }

  // O += P V of a group, as P comes.
  JFA_INLINE void issue_output(int group, int index, bool keep) {
    constexpr int kSteps = C::kBlockN / 16 / C::kSlices;
#pragma unroll
    for (int slice = 0; slice < C::kSlices; ++slice) {
      ptx::mbarrier_wait(shared.barrier(C::kPFull + group * C::kSlices + slice), p_full[group].phase);
      ptx::tcgen05_fence_after();
      if (!ptx::elect()) continue;
#pragma unroll
      for (int step = slice * kSteps; step < (slice + 1) * kSteps; ++step) {
        ptx::mma_ts<1>(tmem + C::kColumnO + group * C::kDim, tmem + group * C::kColumnsS + step * 8,
                       ptx::smem_descriptor(v + index * (C::kBytesSlot / 16) + step * (2048 / 16)), kOutput,
                       step > 0 || keep);
      }
    }
    p_full[group].advance();
  }

  // Products of a group start in the order of issue, so that S of the next block may follow O of this one into the
  // columns of P. While softmax works on one group, the other multiplies. Of the barriers that follow a product, the
  // one that somebody surely waits for is the last, so that the CTA does not end before the others.
  JFA_INLINE void run() {
    int output = 0;  // groups of the block whose P comes next
    bool keep = false;
    while (true) {
      const int last_tile = tiles.ring.index;
      const int of_v = output > 0 ? wait_slot() : 0;
      int of_k = 0;
      bool more = false;
#pragma unroll
      for (int group = 0; group < C::kGroups; ++group) {
        if (group < output) {
          issue_output(group, of_v, keep);
          if (group == output - 1) commit(C::kSlotEmpty + of_v);
          commit(C::kOFull + group);
        }
        if (group == 0 && (more = next_block())) of_k = wait_slot();
        if (more && group < groups) {
          issue_scores(group, of_k);
          if (group == groups - 1) {
            if (left == 0) commit(C::kQEmpty + tile);
            commit(C::kSlotEmpty + of_k);
          }
          commit(C::kSFull + group);
        }
      }
      if (!more) break;
      keep = tiles.ring.index == last_tile;
      output = groups;
    }
  }
};

}  // namespace jfa::sm100
