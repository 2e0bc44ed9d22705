// Hopper forward: persistent, warp-specialised. docs/forward.md tells how the roles work together.
#pragma once

#include "sm90/forward/consumer.cuh"

namespace jfa::sm90 {

template <typename C>
JFA_INLINE void forward(const ForwardMaps& maps, const ForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ForwardShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) initialise<C>(maps, shared);
  __syncthreads();
  const int warpgroup = ptx::uniform(threadIdx.x / 128), warp = ptx::uniform(threadIdx.x / 32);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      if (threadIdx.x == 0) load<C>(p, maps, shared);
    } else if (warp == 1) {
      if (threadIdx.x == 32) list_tiles<C>(p, shared);
    } else {
      fill_keyless<C>(p, 2 * blockIdx.x + warp - 2, 2 * gridDim.x);
    }
  } else {
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    Consumer<C>{p, maps.o, shared, warpgroup - 1}.run();
  }
}

}  // namespace jfa::sm90

#define JFA_SM90_FORWARD(name, dim, ...)                                          \
  JFA_KERNEL(jfa_sm90_forward, name, jfa::sm90::forward, Forward,                 \
             (jfa::sm90::ForwardConfig<jfa::JFA_DTYPE, dim, __VA_ARGS__>::kCtas), \
             jfa::sm90::ForwardConfig<jfa::JFA_DTYPE, dim, __VA_ARGS__>)
