// Pairs of CTAs (PTX ISA, "Parallel Synchronization and Communication Instructions", and "mapa"): the other CTA's
// shared memory, and barriers that both arrive at. The even CTA of a pair is its leader.
#pragma once

#include <cstdint>

namespace jfa::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits for all threads of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The address of `address` in the CTA of this rank.
__device__ __forceinline__ uint32_t map_shared(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// One arrival at a barrier of any CTA of the cluster, predicated rather than branched around.
__device__ __forceinline__ void mbarrier_arrive_cluster_if(bool arrives, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred arrives;\n"
      "setp.ne.b32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "r"(static_cast<int>(arrives))
      : "memory");
}

// Waits for the end of a phase that arrivals of other CTAs end.
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// `bytes` contiguous bytes of this CTA's shared memory to another's, where they complete `barrier` ("cp.async.bulk").
__device__ __forceinline__ void bulk_send(uint32_t dst, uint32_t src, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
      "r"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace jfa::ptx
