// Blackwell forward: persistent, warp-specialised. docs/forward.md tells how the roles work together.
#pragma once

#include "sm100/forward/correction.cuh"
#include "sm100/forward/multiplier.cuh"
#include "sm100/forward/softmax.cuh"

namespace jfa::sm100 {

template <typename C>
__device__ __forceinline__ void initialise(ForwardShared<C> shared) {
  auto init = [&](int first, int count, int arrivals) {
    for (int i = 0; i < count; ++i) ptx::mbarrier_init(shared.barrier(first + i), arrivals);
  };
  constexpr int kWarps = 4;  // of a warpgroup
  init(C::kSlotFull, 2 * C::kSlots, 1);
  init(C::kTileFull, C::kTiles, 1);
  init(C::kTileEmpty, C::kTiles, 3 + kWarps * (C::kGroups + 1));
  init(C::kTileLoaded, 2 * C::kTiles + 3 * C::kGroups, 1);  // with kQEmpty, kQFull, kSFull, kOFull
  for (int group = 0; group < C::kGroups; ++group) {
    init(C::kPFull + group * C::kSlices, 1, 2 * kWarps);
    init(C::kPFull + group * C::kSlices + 1, C::kSlices - 1, kWarps);
  }
  init(C::kMessageFull, 2 * C::kGroups * C::kMessages, kWarps);
  init(C::kStagingFull, C::kGroups, kWarps);
  init(C::kStagingEmpty, C::kGroups + 1, 1);  // with kResponse
  ptx::fence_mbarrier_init();
}

template <typename C>
__device__ __forceinline__ void forward(const CUtensorMap& map_q, const CUtensorMap& map_k, const CUtensorMap& map_v,
                                        const CUtensorMap& map_o, const ForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ForwardShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  const int warpgroup = ptx::uniform(threadIdx.x / 128), warp = ptx::uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&map_q, &map_k, &map_v, &map_o}) ptx::prefetch_tensor_map(*map);
    initialise(shared);
  }
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
      if (ptx::elect()) load(p, map_q, map_k, map_v, shared);
    } else if (warp == 1) {
      Multiplier<C>{shared, columns}.run();
    } else if (warp == 2) {
      if (ptx::elect()) store(p, map_o, shared);
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

// Instantiates one kernel with a C name.
#define JFA_SM100_FORWARD(name, type, dim, mask)                                                         \
  extern "C" __global__ void __launch_bounds__(jfa::sm100::ForwardConfig<type, dim, mask>::kThreads, 1)  \
      name(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,         \
           const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o,         \
           const __grid_constant__ jfa::ForwardParams params) {                                          \
    jfa::sm100::forward<jfa::sm100::ForwardConfig<type, dim, mask>>(map_q, map_k, map_v, map_o, params); \
  }
