// Hopper backward for long or packed Q: K/V-stationary, persistent. docs/backward.md tells how the roles work together.
#pragma once

#include "backward/finish.cuh"
#include "sm90/backward/kv_consumer.cuh"
#include "sm90/backward/kv_storer.cuh"

namespace jfa::sm90 {

template <typename C>
__device__ __forceinline__ void backward_kv_stationary(const BackwardMaps& maps, const BackwardParams& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const KvStationaryShared<C> shared{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.grad_o, &maps.grad_k, &maps.grad_v}) {
      ptx::prefetch_tensor_map(*map);
    }
    for (int i = 0; i < C::kTiles; ++i) {
      ptx::mbarrier_init(shared.tile_full(i), 1);
      ptx::mbarrier_init(shared.tile_empty(i), 1 + 2 + 8);
    }
    for (int i = 0; i < C::kKeyBuffers; ++i) {
      ptx::mbarrier_init(shared.k_full(i), 1);
      ptx::mbarrier_init(shared.k_empty(i), 8);
    }
    ptx::mbarrier_init(shared.v_full(), 1);
    ptx::mbarrier_init(shared.v_empty(), 8);
    for (int i = 0; i < C::kStages; ++i) {
      ptx::mbarrier_init(shared.q_full(i), 1);
      ptx::mbarrier_init(shared.grad_o_full(i), 1);
      ptx::mbarrier_init(shared.stage_empty(i), 8);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(shared.staged(i), 4);
      ptx::mbarrier_init(shared.staging_free(i), 1);
    }
    ptx::mbarrier_init(shared.sums_made(), 2);
    ptx::fence_mbarrier_init();
  }
  if (C::kDim > 128 && p.head_dim <= C::kDim - 64) {  // columns that no copy fills
    for (int i = threadIdx.x; i < C::kOffsetScoreGrad / 16; i += C::kThreads) {
      reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
    }
    ptx::fence_proxy_async_shared();
  }
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
      if (threadIdx.x == 64) KvStationaryStorer<C, 0>(p, maps, shared).run();
      __syncwarp();
      fill_unseen<C>(p, blockIdx.x, gridDim.x);
    } else {
      if (threadIdx.x == 96) KvStationaryStorer<C, 1>(p, maps, shared).run();
    }
  } else {
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    KvStationaryConsumer<C>(p, shared, warpgroup - 1).run();
    ptx::mbarrier_wait(shared.sums_made(), 0);
    finish_sums<typename C::T, C::kDim>(p, 1, reinterpret_cast<uint32_t*>(memory), threadIdx.x - 128);
  }
}

}  // namespace jfa::sm90

// Instantiates one kernel with a C name.
#define JFA_SM90_BACKWARD_KV(name, type, dim, mask)                                                              \
  extern "C" __global__ void __launch_bounds__(jfa::sm90::KvStationaryConfig<type, dim, mask>::kThreads, 1)      \
      name(const __grid_constant__ jfa::BackwardMaps maps, const __grid_constant__ jfa::BackwardParams params) { \
    jfa::sm90::backward_kv_stationary<jfa::sm90::KvStationaryConfig<type, dim, mask>>(maps, params);             \
  }
