// The warpgroup of the Blackwell backward that adds dQ to its sums in global memory.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/backward/producer.cuh"

namespace jfa::sm100 {

template <typename C>
struct Reduction {
  static constexpr int kPanelFloats = 16 * kSumColumns;  // of a warp's 16 rows; see sum_offset()

  const BackwardParams& p;
  const BackwardShared<C> shared;
  const uint32_t tensor;
  const int warp = ptx::uniform(threadIdx.x / 32 % 4), lane = threadIdx.x % 32;
  const uint32_t sum_columns = tensor + C::kTensorSum + (warp * 32 << 16);  // dQ of this warp's rows
  // The block of 64 queries, its group of 16 rows and the columns that this warp begins with.
  const int first_block = C::kPair ? shared.rank : warp / 2 * (C::kBlocks - 1);
  const int group = C::kSumRows == 2 ? warp % 2 * 2 : warp;
  const int first_column = C::kPair ? warp / 2 * 64 : 0;
  uint32_t steps = 0;
  bool stores = false;  // the tile's sums, see makes_sums()

  JFA_INLINE void run() {
    BackwardTiles<C> tiles{shared};
    while (true) {
      const BackwardTile& t = tiles.wait();
      if (ptx::uniform(t.keys) == 0) break;
      const int sum_block = ptx::uniform(t.sum_block) + ptx::uniform(t.first_block), blocks = ptx::uniform(t.blocks);
      const int rows = ptx::uniform(p.ragged_end - t.q_row - t.first_block * kStatRows);
      stores = !p.broadcast_q && ptx::uniform(makes_sums(t, C::kCtas * C::kBlockN, shared.rank * C::kBlockN));
      tiles.release_by_warp();
#pragma unroll 1
      for (int pass = 0; pass < C::kPasses; ++pass) {
#pragma unroll 1
        for (int head = 0; head < p.group; ++head) {
#pragma unroll 1
          for (int block = 0; block < blocks; block += C::kBlocks) {
            const int64_t at = static_cast<int64_t>(sum_block) + head * p.grad_q_blocks + block + first_block;
            add(p.sums + at * (kStatRows * C::kDim) + pass * (C::kColumns / kSumColumns) * 4 * kPanelFloats,
                block + first_block < blocks ? rows - (block + first_block) * kStatRows : 0);
          }
        }
      }
    }
    if (ptx::elect()) {
      ptx::bulk_wait_group<0>();
      shared.arrive(C::kEnded);
    }
  }

  // Adds `rows` rows of a step's dQ to the block of sums.
  JFA_INLINE void add(float* sums, int rows) {
    float x[C::kHeldSlices][C::kSliceFloats];
    shared.wait(C::kSumFull, steps & 1);
    ptx::tcgen05_fence_after();
    if (p.turns != nullptr) shared.wait(C::kTurn, steps & 1);
    constexpr int kHeldFrom = C::kSlices - C::kHeldSlices;
#pragma unroll
    for (int slice = 0; slice < C::kSlices; ++slice) {
      if (slice <= kHeldFrom) {
#pragma unroll
        for (int held = 0; held < (slice < kHeldFrom ? 1 : C::kHeldSlices); ++held) load(x[held], slice + held);
      }
      if (slice == kHeldFrom && C::kSwitches.early_slices > 0) hand_over(shared, C::kSumEmpty);
      if (group * 16 < rows) stage(x[max(slice - kHeldFrom, 0)], slice, sums);
    }
    if (C::kSwitches.early_slices == 0) hand_over(shared, C::kSumEmpty);
    if (p.ordered) {
      if (ptx::elect()) {
        ptx::bulk_wait_group<0>();
        if (p.turns != nullptr) shared.arrive(C::kSumsMade);
      }
      ptx::bar_sync(5, 128);  // another warp may add to the same rows in the next tile
    }
    ++steps;
  }

  JFA_INLINE void load(float* x, int slice) const {
    const uint32_t address = sum_columns + slice * C::kSliceColumns;
#pragma unroll
    for (int rows = 0; rows < C::kSumRows; ++rows) {
      ptx::tmem_load_rows<C::kSliceColumns / 8>(x + rows * (C::kSliceColumns / 2), address + (rows * 16 << 16));
    }
    ptx::tmem_wait_load<C::kSliceFloats>(x);
  }

  // Adds a slice through a buffer of this warp.
  JFA_INLINE void stage(const float* x, int slice, float* sums) const {
    const uint32_t buffer = shared.slice(warp, slice % C::kSwitches.sum_stages);
    constexpr int kRowFloats = C::kSliceColumns / 2;  // of a thread, of 16 rows
    if (ptx::elect()) {
      ptx::bulk_wait_group_read<C::kSwitches.store_in_flight ? C::kSwitches.sum_stages - 1 : 0>();
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::kSliceFloats / 4; ++i) {
      ptx::store_shared4(buffer + i * 512 + lane * 16, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (ptx::elect()) {
#pragma unroll
      for (int rows = 0; rows < C::kSumRows; ++rows) {
        const int column = first_column + slice * C::kSliceColumns;
        const int at = (column / kSumColumns * 4 + group + rows) * kPanelFloats + column % kSumColumns * 16;
        if (stores) {
          ptx::bulk_store(sums + at, buffer + rows * kRowFloats * 128, kRowFloats * 128);
        } else {
          ptx::bulk_add_f32(sums + at, buffer + rows * kRowFloats * 128, kRowFloats * 128);
        }
      }
      ptx::bulk_commit_group();
    }
  }
};

}  // namespace jfa::sm100
