// Hopper backward for a short broadcast Q: Q-stationary, persistent. docs/backward.md tells how the roles work
// together.
#pragma once

#include "backward/finish.cuh"
#include "sm90/backward/q_consumer.cuh"

namespace jfa::sm90 {

template <typename C>
__device__ __forceinline__ void backward_q_stationary(const BackwardMaps& maps, const BackwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const QStationaryShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.grad_o, &maps.grad_k, &maps.grad_v}) {
      ptx::prefetch_tensor_map(*map);
    }
    for (int i = 0; i < C::kCopies; ++i) {
      ptx::mbarrier_init(shared.k_full(i), 1);
      ptx::mbarrier_init(shared.v_full(i), 1);
    }
    for (int i = 0; i < C::kSlots; ++i) {
      ptx::mbarrier_init(shared.slot_empty(i), 4 + 1);
      ptx::mbarrier_init(shared.score_grad_full(i), 4);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(shared.grad_o_full(i), 1);
      ptx::mbarrier_init(shared.grad_o_empty(i), 8);
    }
    ptx::mbarrier_init(shared.q_full(), 1);
    for (int i = 0; i < 2 * C::kPanels; ++i) {
      ptx::mbarrier_init(shared.staged(0, i), 4);
      ptx::mbarrier_init(shared.staging_free(0, i), 1);
    }
    ptx::mbarrier_init(shared.sums_made(), 128);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int warpgroup = ptx::uniform(threadIdx.x / 128);
  ptx::griddepcontrol_wait();
  const TileRange range(p.schedule);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    if (threadIdx.x == 0) load<C>(p, maps, shared, range);
    if (threadIdx.x == 32) store<C>(p, maps, shared, range, 0);
    if (threadIdx.x == 64) store<C>(p, maps, shared, range, 1);
  } else if (warpgroup <= 2) {
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    QStationaryConsumer<C>(p, shared, warpgroup - 1).run(range.end - range.begin);
    ptx::mbarrier_wait(shared.sums_made(), 0);
    finish_sums<typename C::T, C::kDim>(p, 1, reinterpret_cast<uint32_t*>(memory), threadIdx.x - 128);
  } else {
    if constexpr (C::kLargeSum) {
      ptx::setmaxnreg_inc<C::kSumRegisters>();
    } else {
      ptx::setmaxnreg_dec<C::kSumRegisters>();
    }
    sum_queries<C>(p, shared, range);
  }
}

}  // namespace jfa::sm90

// Instantiates one kernel with a C name.
#define JFA_SM90_BACKWARD_Q(name, type, dim, blocks)                                                             \
  extern "C" __global__ void __launch_bounds__(jfa::sm90::QStationaryConfig<type, dim, blocks>::kThreads, 1)     \
      name(const __grid_constant__ jfa::BackwardMaps maps, const __grid_constant__ jfa::BackwardParams params) { \
    jfa::sm90::backward_q_stationary<jfa::sm90::QStationaryConfig<type, dim, blocks>>(maps, params);             \
  }
