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
  // Descriptors of group 0 and of slot 0, as K and as V.
  const uint32_t q = ptx::smem_descriptor_low(shared.q(0), 16), k = ptx::smem_descriptor_low(shared.slot(0), 16);
  const uint32_t v = ptx::smem_descriptor_low(shared.slot(0), C::kPanelKv);
  ForwardTiles<C> tiles{shared};
  Ring<C::kSlots> slot;
  uint32_t q_phases = 0, p_phases = 0;  // bit `group`: phase of the next Q and P
  int left = 0;                         // blocks of the tile whose scores are to be issued

  // Blocks that the groups work on at the same time.
  struct Step {
    int groups = 0;
    bool by_keys = false, first = false, last = false;  // of a tile
    int tile = 0;                                       // place of its description
  } scores;

  JFA_INLINE void commit(int place) const {
    if (ptx::elect()) ptx::mma_commit<1>(shared.barrier(place));
  }

  JFA_INLINE int wait_slot() {
    const int index = slot.index;
    shared.wait(C::kSlotFull + index, slot.phase);
    slot.advance();
    return index;
  }

  // Goes to the next blocks, and takes their Q if it is another one; false at the end of the list.
  JFA_INLINE bool advance() {
    scores.first = left == 0;
    if (scores.first) {
      const ForwardTile& t = tiles.wait();
      const int keys = t.keys, new_q = t.new_q, rows = t.rows;
      const Spread<C> spread(t);
      scores.tile = tiles.ring.index;
      tiles.release_by_warp();
      if (keys == 0) return false;
      left = spread.blocks;
      scores.by_keys = spread.by_keys;
      scores.groups = spread.groups;
      for (int group = 0; new_q && group < (rows > C::kRows ? C::kGroups : 1); ++group) {
        shared.wait(C::kQFull + group, q_phases >> group & 1);
        q_phases ^= 1 << group;
      }
    }
    if (scores.by_keys) {
      scores.groups = min(left, 2);
      left -= scores.groups;
    } else {
      --left;
    }
    scores.last = left == 0;
    return true;
  }

  // S = Q K^T of a group.
  JFA_INLINE void issue_scores(int group, int index) const {
    if (!ptx::elect()) return;
    const uint32_t first_q = scores.by_keys ? q : q + group * (C::kBytesQ / 16);
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      const uint32_t inner = step % 4 * 2;
      ptx::mma_ss<1>(tmem + group * C::kColumnsS, ptx::smem_descriptor(first_q + step / 4 * (C::kPanelQ / 16) + inner),
                     ptx::smem_descriptor(k + index * (C::kBytesSlot / 16) + step / 4 * (C::kPanelKv / 16) + inner),
                     kScores, step > 0);
    }
  }

  // O += P V of a group, as P comes.
  JFA_INLINE void issue_output(int group, int index, bool keep) {
    constexpr int kSteps = C::kBlockN / 16 / C::kSwitches.slices;
#pragma unroll
    for (int slice = 0; slice < C::kSwitches.slices; ++slice) {
      shared.wait(C::kPFull + group * C::kSwitches.slices + slice, p_phases >> group & 1);
      ptx::tcgen05_fence_after();
      if (!ptx::elect()) continue;
#pragma unroll
      for (int step = slice * kSteps; step < (slice + 1) * kSteps; ++step) {
        ptx::mma_ts<1>(tmem + C::kColumnO + group * C::kDim, tmem + group * C::kColumnsS + step * 8,
                       ptx::smem_descriptor(v + index * (C::kBytesSlot / 16) + step * (2048 / 16)), kOutput,
                       step > 0 || keep);
      }
    }
    p_phases ^= 1 << group;
  }

  // Products of a group start in the order of issue, so that S of the next block may follow O of this one into the
  // columns of P. While softmax works on one group, the other multiplies. Of the barriers that follow a product, the
  // one that somebody surely waits for is the last, so that the CTA does not end before the others.
  JFA_INLINE void run() {
    Step output;  // those whose P comes next
    for (bool more = true; more;) {
      // Loads go on in the order of the blocks, and V of the last two of a tile comes before K of the next tile.
      const bool in_turn = !(output.by_keys && output.last);
      int of_v = 0, of_k = 0;
#pragma unroll 1
      for (int i = 0; i < 2 * C::kGroups; ++i) {
        const int group = in_turn ? i / 2 : i % C::kGroups;
        if (in_turn ? i % 2 == 0 : i < C::kGroups) {
          if (group >= output.groups) continue;
          if (group == 0 || output.by_keys) of_v = wait_slot();
          issue_output(group, of_v, !output.first);
          if (group == output.groups - 1 || output.by_keys) commit(C::kSlotEmpty + of_v);
          // A commit is for everything before it. Groups that differ by keys are finished together.
          if (output.last && (group == output.groups - 1 || !output.by_keys)) {
            commit(C::kOFull + (output.by_keys ? 0 : group));
          }
        } else {
          if (group == 0) more = advance();
          if (!more || group >= scores.groups) continue;
          if (group == 0 || scores.by_keys) of_k = wait_slot();
          issue_scores(group, of_k);
          if (group == scores.groups - 1 && scores.last) commit(C::kQEmpty + scores.tile);
          if (group == scores.groups - 1 || scores.by_keys) commit(C::kSlotEmpty + of_k);
          commit(C::kSFull + group);
        }
      }
      output = scores;
    }
  }
};

}  // namespace jfa::sm100
