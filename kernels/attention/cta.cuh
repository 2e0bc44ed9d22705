// What a CTA of every attention kernel has: shared memory with mbarriers and descriptions of tiles, and copies into it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"

namespace jfa {

using bf16 = __nv_bfloat16;
using fp16 = __half;

// Shared-memory addresses of a CTA; C: its configuration.
template <typename C, typename Tile>
struct CtaShared {
  uint32_t base;

  __device__ uint32_t tile_address(int i) const { return base + C::kOffsetTiles + i * static_cast<int>(sizeof(Tile)); }
  __device__ Tile& tile(int i) const { return *static_cast<Tile*>(__cvta_shared_to_generic(tile_address(i))); }

  // Barriers by the places that C gives them. "Full" is for the reader, "empty" for the writer.
  __device__ uint32_t barrier(int place) const { return base + C::kOffsetBarriers + 8 * place; }
  JFA_INLINE void wait(int place, uint32_t parity) const { ptx::mbarrier_wait(barrier(place), parity); }
  JFA_INLINE void arrive(int place) const { ptx::mbarrier_arrive(barrier(place)); }
  JFA_INLINE void arrive_if(bool arrives, int place) const { ptx::mbarrier_arrive_if(arrives, barrier(place)); }
  JFA_INLINE void expect(int place, uint32_t bytes) const { ptx::mbarrier_arrive_expect_tx(barrier(place), bytes); }
};

// Fetches tensor maps and initialises all barriers; one thread. `args`: what their arrivals depend on.
template <typename C, typename Maps, typename Shared, typename... Args>
JFA_INLINE void initialise(const Maps& maps, const Shared& shared, Args... args) {
  constexpr int kMaps = sizeof(Maps) / sizeof(CUtensorMap);
#pragma unroll
  for (int i = 0; i < kMaps; ++i) ptx::prefetch_tensor_map(reinterpret_cast<const CUtensorMap*>(&maps)[i]);
  for (int i = 0; i < C::kBarriers; ++i) ptx::mbarrier_init(shared.barrier(i), C::arrivals(i, args...));
  ptx::fence_mbarrier_init();
}

// Loads all rows of a block, in one box or, if head_dim is not whole panels, one a panel. kOnce: nobody reads them
// again.
template <bool kOnce = false>
JFA_INLINE void load_rows(uint32_t dst, int panel_bytes, const CUtensorMap& map, uint32_t barrier, int32_t boxes,
                          int32_t row, int32_t head, int32_t end) {
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    if constexpr (kOnce) {
      ptx::tma_load_once(dst + box * panel_bytes, map, barrier, box * 64, row, 0, head, end);
    } else {
      ptx::tma_load(dst + box * panel_bytes, map, barrier, box * 64, row, 0, head, end);
    }
  }
}

}  // namespace jfa

// Units are compiled once for each element type: JFA_DTYPE, bf16 or fp16.
#define JFA_NAME(prefix, suffix) JFA_NAME_OF(prefix, JFA_DTYPE, suffix)
#define JFA_NAME_OF(prefix, dtype, suffix) JFA_PASTE(prefix, dtype, suffix)
#define JFA_PASTE(prefix, dtype, suffix) prefix##_##dtype##_##suffix

// Instantiates a kernel with a C name: `run` on the maps and parameters of a phase, Forward or Backward, so that `ctas`
// CTAs fit a multiprocessor. The rest is its configuration.
#define JFA_KERNEL(prefix, suffix, run, phase, ctas, ...)                                                 \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, ctas) JFA_NAME(prefix, suffix)(     \
      const __grid_constant__ jfa::phase##Maps maps, const __grid_constant__ jfa::phase##Params params) { \
    run<__VA_ARGS__>(maps, params);                                                                       \
  }
