// The order of sums of dQ.
#pragma once

#include "sm100/backward/producer.cuh"

namespace jfa::sm100 {

// Lets this CTA add to each block of dQ when all sums are made that come before: those of the key blocks before for
// packed Q, of the tiles before in the same partial sum for broadcast Q, which then has no mask. A step adds to
// kBlockM / 64 blocks, in each of kPasses to other columns. The turn of a step may come while the sums of the one
// before are made.
template <typename C>
__device__ void keep_order(const BackwardParams& p, BackwardShared<C> shared) {
  constexpr int kBlocks = C::kBlockM / kStatRows;
  BackwardTiles<C> tiles{shared};
  uint32_t phase = 0;
  while (true) {
    const BackwardTile& t = tiles.wait();
    if (t.keys == 0) return;
    uint32_t* counters = p.turns + t.sum_block + t.first_block;  // of one pass and head
    auto has_come = [&](int block) {
      for (int i = block; i < min(block + kBlocks, t.blocks); ++i) {
        uint32_t turn = t.turn;
        if constexpr (C::kMask) turn -= p.mask.begin_key((t.first_block + i) * kStatRows, t.diagonal) / C::kBlockN;
        if (ptx::load_acquire(counters + i) != turn) return false;
      }
      return true;
    };
#pragma unroll 1
    for (int pass = 0; pass < C::kPasses; ++pass, counters -= p.group * p.grad_q_blocks) {
#pragma unroll 1
      for (int head = 0; head < p.group; ++head, counters += p.grad_q_blocks) {
        bool come = false;
#pragma unroll 1
        for (int block = 0; block < t.blocks; block += kBlocks) {
          if (!come) {
            while (!has_come(block)) ptx::nanosleep();
            shared.arrive(C::kTurn);
          }
          come = false;
          while (!come && block + kBlocks < t.blocks && !ptx::mbarrier_test(shared.barrier(C::kSumsMade), phase)) {
            come = has_come(block + kBlocks);
          }
          shared.wait(C::kSumsMade, phase);
          phase ^= 1;
          if (come) shared.arrive(C::kTurn);
          if (pass < C::kPasses - 1) continue;
          for (int i = block; i < min(block + kBlocks, t.blocks); ++i) ptx::add_release(counters + i);
        }
      }
    }
    tiles.release();
  }
}

}  // namespace jfa::sm100
