// The warpgroup of the Blackwell backward that adds dQ to its sums in global memory.
#pragma once

#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/backward/producer.cuh"

namespace jfa::sm100 {

template <typename C>
class Reduction {
  static constexpr int kPanelFloats = 16 * kSumColumns;  // of a warp's 16 rows; see sum_offset()

 public:
  JFA_INLINE Reduction(const BackwardParams& p, BackwardShared<C> shared, uint32_t tensor)
      : p_(p), shared_(shared), tensor_(tensor + C::kTensorSum + (warp_ * 32 << 16)) {}

  JFA_INLINE void run() {
    BackwardTiles<C> tiles{shared_};
    while (true) {
      const BackwardTile& t = tiles.wait();
      if (ptx::uniform(t.keys) == 0) break;
      const int sum_block = ptx::uniform(t.sum_block) + ptx::uniform(t.first_block), blocks = ptx::uniform(t.blocks);
      const int rows = ptx::uniform(p_.ragged_end - t.q_row - t.first_block * kStatRows);
      stores_ = !p_.broadcast_q && ptx::uniform(makes_sums(t, C::kCtas * C::kBlockN, shared_.rank * C::kBlockN));
      __syncwarp();
      tiles.release(lane_ == 0);
#pragma unroll 1
      for (int pass = 0; pass < C::kPasses; ++pass) {
#pragma unroll 1
        for (int head = 0; head < p_.group; ++head) {
#pragma unroll 1
          for (int block = 0; block < blocks; block += C::kBlocks) {
            const int64_t at = static_cast<int64_t>(sum_block) + head * p_.grad_q_blocks + block + block_;
            add(p_.sums + at * (kStatRows * C::kDim) + pass * (C::kColumns / kSumColumns) * 4 * kPanelFloats,
                block + block_ < blocks ? rows - (block + block_) * kStatRows : 0);
          }
        }
      }
    }
    if (ptx::elect()) {
      ptx::bulk_wait_group<0>();
      ptx::mbarrier_arrive(shared_.barrier(C::kEnded));
    }
  }

 private:
  // Adds `rows` rows of a step's dQ to the block of sums.
  JFA_INLINE void add(float* sums, int rows) {
    float x[C::kHeldSlices][C::kSliceFloats];
    ptx::mbarrier_wait(shared_.barrier(C::kSumFull), steps_ & 1);
    ptx::tcgen05_fence_after();
    if (p_.turns != nullptr) ptx::mbarrier_wait(shared_.turn(), steps_ & 1);
    constexpr int kHeldFrom = C::kSlices - C::kHeldSlices;
#pragma unroll
    for (int slice = 0; slice < C::kSlices; ++slice) {
      if (slice <= kHeldFrom) {
#pragma unroll
        for (int held = 0; held < (slice < kHeldFrom ? 1 : C::kHeldSlices); ++held) load(x[held], slice + held);
      }
      if (slice == kHeldFrom && C::kSwitches.early_slices > 0) hand_over(shared_, C::kSumEmpty);
      if (group_ * 16 < rows) stage(x[max(slice - kHeldFrom, 0)], slice, sums);
    }
    if (C::kSwitches.early_slices == 0) hand_over(shared_, C::kSumEmpty);
    if (p_.ordered) {
      if (ptx::elect()) {
        ptx::bulk_wait_group<0>();
        if (p_.turns != nullptr) ptx::mbarrier_arrive(shared_.sums_made());
      }
      ptx::bar_sync(5, 128);  // another warp may add to the same rows in the next tile
    }
    ++steps_;
  }

  JFA_INLINE void load(float* x, int slice) const {
    const uint32_t address = tensor_ + slice * C::kSliceColumns;
#pragma unroll
    for (int rows = 0; rows < C::kSumRows; ++rows) {
      ptx::tmem_load_rows<C::kSliceColumns / 8>(x + rows * (C::kSliceColumns / 2), address + (rows * 16 << 16));
    }
    ptx::tmem_wait_load<C::kSliceFloats>(x);
  }

  // Adds a slice through a buffer of this warp.
  JFA_INLINE void stage(const float* x, int slice, float* sums) const {
    const uint32_t buffer = shared_.slice(warp_, slice % C::kSwitches.sum_stages);
    constexpr int kRowFloats = C::kSliceColumns / 2;  // of a thread, of 16 rows
    if (ptx::elect()) {
      ptx::bulk_wait_group_read<C::kSwitches.store_in_flight ? C::kSwitches.sum_stages - 1 : 0>();
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::kSliceFloats / 4; ++i) {
      ptx::store_shared4(buffer + i * 512 + lane_ * 16, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (ptx::elect()) {
#pragma unroll
      for (int rows = 0; rows < C::kSumRows; ++rows) {
        const int column = column_ + slice * C::kSliceColumns;
        const int at = (column / kSumColumns * 4 + group_ + rows) * kPanelFloats + column % kSumColumns * 16;
        if (stores_) {
          ptx::bulk_store(sums + at, buffer + rows * kRowFloats * 128, kRowFloats * 128);
        } else {
          ptx::bulk_add_f32(sums + at, buffer + rows * kRowFloats * 128, kRowFloats * 128);
        }
      }
      ptx::bulk_commit_group();
    }
  }

  const BackwardParams& p_;
  const BackwardShared<C> shared_;
  const int warp_ = ptx::uniform(threadIdx.x / 32 % 4), lane_ = threadIdx.x % 32;
  const uint32_t tensor_;
  // The block of 64 queries, its group of 16 rows and the columns that this warp begins with.
  const int block_ = C::kPair ? shared_.rank : warp_ / 2 * (C::kBlocks - 1);
  const int group_ = C::kSumRows == 2 ? warp_ % 2 * 2 : warp_;
  const int column_ = C::kPair ? warp_ / 2 * 64 : 0;
  uint32_t steps_ = 0;
  bool stores_;  // the tile's sums, see makes_sums()
};

}  // namespace jfa::sm100
