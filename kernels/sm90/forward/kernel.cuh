// Hopper forward: persistent, warp-specialised. docs/forward.md tells how the roles work together.
#pragma once

#include "sm90/forward/consumer.cuh"

namespace jfa::sm90 {

template <typename C>
__device__ __forceinline__ void forward(const CUtensorMap& map_q, const CUtensorMap& map_k, const CUtensorMap& map_v,
                                        const CUtensorMap& map_o, const ForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ForwardShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  auto* tiles = reinterpret_cast<ForwardTile*>(memory + C::kOffsetTiles);
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&map_q, &map_k, &map_v, &map_o}) ptx::prefetch_tensor_map(*map);
    for (int i = 0; i < C::kSlots; ++i) {
      ptx::mbarrier_init(shared.slot_full(i), 1);
      ptx::mbarrier_init(shared.slot_empty(i), 4 * C::kWarpgroups);
    }
    for (int i = 0; i < C::kTiles; ++i) {
      ptx::mbarrier_init(shared.tile_full(i), 1);
      ptx::mbarrier_init(shared.tile_empty(i), 1 + 4 * C::kWarpgroups);
    }
    for (int i = 0; i < C::kQBuffers; ++i) {
      ptx::mbarrier_init(shared.q_full(i), 1);
      ptx::mbarrier_init(shared.q_empty(i), 4 * C::kWarpgroups);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int warpgroup = ptx::uniform(threadIdx.x / 128), warp = ptx::uniform(threadIdx.x / 32);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    ptx::griddepcontrol_wait();
    if (warp == 0) {
      if (threadIdx.x == 0) load<C>(p, map_q, map_k, map_v, shared, tiles);
    } else if (warp == 1) {
      if (threadIdx.x == 32) list_tiles<C>(p, shared, tiles);
    } else {
      fill_keyless<C>(p, 2 * blockIdx.x + warp - 2, 2 * gridDim.x);
    }
  } else {
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    Consumer<C>(p, map_o, shared, warpgroup - 1).run();
  }
}

}  // namespace jfa::sm90

// Instantiates one kernel with a C name.
#define JFA_SM90_FORWARD(name, type, dim, ...)                                                                \
  extern "C" __global__ void __launch_bounds__(jfa::sm90::ForwardConfig<type, dim, __VA_ARGS__>::kThreads,    \
                                               jfa::sm90::ForwardConfig<type, dim, __VA_ARGS__>::kCtas)       \
      name(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,              \
           const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o,              \
           const __grid_constant__ jfa::ForwardParams params) {                                               \
    jfa::sm90::forward<jfa::sm90::ForwardConfig<type, dim, __VA_ARGS__>>(map_q, map_k, map_v, map_o, params); \
  }
