// Blackwell backward: K/V-stationary, one CTA or pairs of them. docs/backward.md tells how the roles work together.
#pragma once

#include "backward/finish.cuh"
#include "sm100/backward/compute.cuh"
#include "sm100/backward/multiplier.cuh"
#include "sm100/backward/order.cuh"
#include "sm100/backward/reduction.cuh"

namespace jfa::sm100 {

// Tells the leader of a pair whenever the other CTA's part of dS has arrived, and that one, too; one thread.
template <typename C>
__device__ void relay(const BackwardParams& p, BackwardShared<C> shared) {
  BackwardTiles<C> tiles{shared};
  Ring<1> step;
  while (true) {
    const BackwardTile& t = tiles.wait();
    if (t.keys == 0) return;
    const int steps = steps_of<C>(t) * p.group;
    tiles.release();
    for (int i = 0; i < steps; ++i, step.advance()) {
      shared.expect(C::kPeerFull, C::kPanelKv);
      ptx::mbarrier_wait_cluster(shared.barrier(C::kPeerFull), step.phase);
      arrive_at_leader<C>(true, shared.barrier(C::kScoreGradFull));
      ptx::mbarrier_arrive_cluster_if(true, ptx::map_shared(shared.barrier(C::kSent), shared.rank ^ 1));
    }
  }
}

template <typename C>
JFA_INLINE void sync_ctas() {
  if constexpr (C::kPair) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
}

template <typename C>
JFA_INLINE void backward(const BackwardMaps& maps, const BackwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const BackwardShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory)),
                                 C::kPair ? ptx::cluster_rank() : 0};
  const int warp = ptx::uniform(threadIdx.x / 32), warpgroup = ptx::uniform(threadIdx.x / 128);
  if (threadIdx.x == 0) initialise<C>(maps, shared, (shared.rank == 0) + (C::kPair || p.turns != nullptr));
  zero_unfilled<C>(p, memory);
  if (warp == 0) {
    ptx::tmem_alloc<C::kCtas>(shared.tensor(), 512);
    ptx::tmem_relinquish<C::kCtas>();
  }
  sync_ctas<C>();
  const uint32_t tensor = *reinterpret_cast<const volatile uint32_t*>(memory + C::kOffsetTensor);
  ptx::griddepcontrol_wait();
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kReductionRegisters>();
    Reduction<C>{p, shared, tensor}.run();
  } else if (warpgroup < 3) {
    ptx::setmaxnreg_inc<C::kComputeRegisters>();
    Compute<C>{p, maps, shared, tensor}.run();
    shared.wait(C::kEnded, 0);
    finish_sums<typename C::T, C::kDim>(p, *shared.places(), shared.places() + 1, threadIdx.x - 128);
  } else {
    ptx::setmaxnreg_dec<C::kOtherRegisters>();
    if (warp == 12) {
      if (shared.rank == 0) Multiplier<C>{p, shared, tensor}.run();
    } else if (warp == 13) {
      if (ptx::elect()) Loader<C>{p, maps, shared}.run();
    } else if (warp == 14) {
      list_tiles<C>(p, shared);
    } else if (ptx::elect()) {
      if constexpr (C::kPair) {
        relay<C>(p, shared);
      } else {
        if (p.turns != nullptr) keep_order(p, shared);
      }
    }
  }
  __syncwarp();
  sync_ctas<C>();
  if (threadIdx.x < 32) ptx::tmem_dealloc<C::kCtas>(tensor, 512);
}

}  // namespace jfa::sm100

#define JFA_SM100_BACKWARD(name, dim, ctas)                               \
  JFA_KERNEL(jfa_sm100_backward, name, jfa::sm100::backward, Backward, 1, \
             jfa::sm100::BackwardConfig<jfa::JFA_DTYPE, dim, ctas>)
