// Bulk tensor copies (PTX ISA, "cp.async.bulk.tensor") and their completion groups.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace jfa::ptx {

// Global to shared memory; completes `barrier` with the bytes of the whole box, clipped or not. kCtas 2: a barrier of
// either CTA of a pair.
template <int kCtas = 1>
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap& map, uint32_t barrier, int32_t c0, int32_t c1,
                                         int32_t c2, int32_t c3, int32_t c4) {
#define JFA_TMA_LOAD(group)                                                                             \
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" group \
               " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dst),                                   \
               "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)                     \
               : "memory")
  if constexpr (kCtas == 2) {
    JFA_TMA_LOAD(".cta_group::2");
  } else {
    JFA_TMA_LOAD("");
  }
}

// The same for rows that are read once: L2 gives them up first (PTX ISA, "createpolicy").
__device__ __forceinline__ void tma_load_once(uint32_t dst, const CUtensorMap& map, uint32_t barrier, int32_t c0,
                                              int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], policy;\n"
      "}" ::"r"(dst),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Global memory to L2 (PTX ISA, "cp.async.bulk.prefetch.tensor").
__device__ __forceinline__ void tma_prefetch(const CUtensorMap& map, int32_t c0, int32_t c1, int32_t c2, int32_t c3,
                                             int32_t c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// Shared to global memory; elements outside the map are dropped.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t src, int32_t c0, int32_t c1, int32_t c2,
                                          int32_t c3, int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// The same for what this kernel does not touch again: L2 gives it up first.
__device__ __forceinline__ void tma_store_once(const CUtensorMap& map, uint32_t src, int32_t c0, int32_t c1, int32_t c2,
                                               int32_t c3, int32_t c4) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group.L2::cache_hint"
      " [%0, {%2, %3, %4, %5, %6}], [%1], policy;\n"
      "}" ::"l"(&map),
      "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Shared to global memory, added to what is there (PTX ISA, "cp.reduce.async.bulk.tensor").
__device__ __forceinline__ void tma_add(const CUtensorMap& map, uint32_t src, int32_t c0, int32_t c1, int32_t c2,
                                        int32_t c3, int32_t c4) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
          &map),
      "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// `bytes` contiguous bytes from global to shared memory (PTX ISA, "cp.async.bulk"); both 16-byte aligned.
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(barrier)
               : "memory");
}

// `bytes` contiguous bytes from shared to global memory; both 16-byte aligned.
__device__ __forceinline__ void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}

// Adds `bytes` contiguous bytes of fp32 in shared memory to global memory (PTX ISA, "cp.reduce.async.bulk"). L2 keeps
// them as long as it can.
__device__ __forceinline__ void bulk_add_f32(float* dst, uint32_t src, uint32_t bytes) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, policy;\n"
      "}" ::"l"(dst),
      "r"(src), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `kPending` groups of this thread still read shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until at most `kPending` groups of this thread are incomplete.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace jfa::ptx
