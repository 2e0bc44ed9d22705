// Blackwell forward: persistent, warp-specialised. docs/forward.md tells how the roles work together.
#pragma once

#include "sm100/forward/correction.cuh"
#include "sm100/forward/multiplier.cuh"
#include "sm100/forward/softmax.cuh"

namespace jfa::sm100 {

template <typename C>
JFA_INLINE void forward(const ForwardMaps& maps, const ForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ForwardShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  const int warpgroup = ptx::uniform(threadIdx.x / 128), warp = ptx::uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) initialise<C>(maps, shared);
  if (warp == 1) {
    ptx::tmem_alloc<1>(shared.columns(), C::kColumns);
    ptx::tmem_relinquish<1>();
  }
  __syncthreads();
  const uint32_t columns = *reinterpret_cast<const uint32_t*>(memory + C::kOffsetColumns);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kRoleRegisters>();
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      if (ptx::elect()) load(p, maps, shared);
    } else if (warp == 1) {
      Multiplier<C>{shared, columns}.run();
    } else if (warp == 2) {
      if (ptx::elect()) store(p, maps.o, shared);
    } else {
      list_tiles(p, shared);
    }
    __syncwarp();
  } else if (warpgroup <= C::kGroups) {
    ptx::setmaxnreg_inc<C::kSoftmaxRegisters>();
    Softmax<C>{p, shared, columns, warpgroup - 1}.run();
  } else {
    ptx::setmaxnreg_dec<C::kCorrectionRegisters>();
    Correction<C>{p, shared, columns}.run();
  }
  __syncthreads();
  if (warp == 1) ptx::tmem_dealloc<1>(columns, C::kColumns);
}

}  // namespace jfa::sm100

#define JFA_SM100_FORWARD(name, dim, mask)                             \
  JFA_KERNEL(jfa_sm100_forward, name, jfa::sm100::forward, Forward, 1, \
             jfa::sm100::ForwardConfig<jfa::JFA_DTYPE, dim, mask>)
