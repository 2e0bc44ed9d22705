// Hopper backward for long or packed Q: K/V-stationary, persistent. docs/backward.md tells how the roles work together.
#pragma once

#include "backward/finish.cuh"
#include "sm90/backward/kv_consumer.cuh"
#include "sm90/backward/kv_storer.cuh"

namespace jfa::sm90 {

template <typename C>
JFA_INLINE void backward_kv_stationary(const BackwardMaps& maps, const BackwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const KvStationaryShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) initialise<C>(maps, shared);
  zero_unfilled<C>(p, memory);
  __syncthreads();
  const int warpgroup = ptx::uniform(threadIdx.x / 128), warp = ptx::uniform(threadIdx.x / 32);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      if (threadIdx.x == 0) load<C>(p, maps, shared);
    } else if (warp == 1) {
      if (threadIdx.x == 32) list_tiles<C>(p, shared);
    } else if (warp == 2) {
      if (threadIdx.x == 64) KvStationaryStorer<C, 0>{p, maps, shared}.run();
      __syncwarp();
      fill_unseen<C>(p, blockIdx.x, gridDim.x);
    } else {
      if (threadIdx.x == 96) KvStationaryStorer<C, 1>{p, maps, shared}.run();
    }
  } else {
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    KvStationaryConsumer<C>{p, shared, warpgroup - 1}.run();
    shared.wait(C::kSumsMade, 0);
    finish_sums<typename C::T, C::kDim>(p, 1, reinterpret_cast<uint32_t*>(memory), threadIdx.x - 128);
  }
}

}  // namespace jfa::sm90

#define JFA_SM90_BACKWARD_KV(name, dim, mask)                                         \
  JFA_KERNEL(jfa_sm90_backward, name, jfa::sm90::backward_kv_stationary, Backward, 1, \
             jfa::sm90::KvStationaryConfig<jfa::JFA_DTYPE, dim, mask>)
