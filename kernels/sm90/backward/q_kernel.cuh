// Hopper backward for a short broadcast Q: Q-stationary, persistent. docs/backward.md tells how the roles work
// together.
#pragma once

#include "backward/finish.cuh"
#include "sm90/backward/q_consumer.cuh"

namespace jfa::sm90 {

template <typename C>
JFA_INLINE void backward_q_stationary(const BackwardMaps& maps, const BackwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const QStationaryShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) initialise<C>(maps, shared);
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
    QStationaryConsumer<C>{p, shared, warpgroup - 1}.run(range.end - range.begin);
    shared.wait(C::kSumsMade, 0);
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

#define JFA_SM90_BACKWARD_Q(name, dim, blocks)                                       \
  JFA_KERNEL(jfa_sm90_backward, name, jfa::sm90::backward_q_stationary, Backward, 1, \
             jfa::sm90::QStationaryConfig<jfa::JFA_DTYPE, dim, blocks>)
