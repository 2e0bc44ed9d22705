// Memory accesses of a whole warp that leave it converged: the compiler then keeps what its lanes share in uniform
// registers.
#pragma once

#include <vector_types.h>

#include <cstdint>

#define JFA_INLINE __device__ __forceinline__

namespace jfa::ptx {

// The same value in all lanes, known to the compiler to be so.
template <typename T>
JFA_INLINE T uniform(T value) {
  return __shfl_sync(~0u, value, 0);
}

// PTX ISA, "ld": 16 bytes, the same for all lanes.
__device__ __forceinline__ int4 load_shared_v4(uint32_t address) {
  int4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// The same, 8 bytes.
__device__ __forceinline__ uint64_t load_shared_u64(uint32_t address) {
  uint64_t v;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(address) : "memory");
  return v;
}

// PTX ISA, "elect.sync": true in one lane of the warp, always the same one.
__device__ __forceinline__ bool elect() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

// PTX ISA, "mbarrier.arrive", predicated rather than branched around, so that a warp stays converged for the compiler.
__device__ __forceinline__ void mbarrier_arrive_if(bool arrives, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred arrives;\n"
      "setp.ne.b32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "r"(static_cast<int>(arrives))
      : "memory");
}

// PTX ISA, "ld": 16 bytes that are read once, past L1.
__device__ __forceinline__ uint4 load_global_once(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// PTX ISA, "st", predicated likewise.
__device__ __forceinline__ void store_global_if(bool stores, float* address, float value) {
  asm volatile(
      "{\n"
      ".reg .pred stores;\n"
      "setp.ne.b32 stores, %2, 0;\n"
      "@stores st.global.f32 [%0], %1;\n"
      "}" ::"l"(address),
      "f"(value), "r"(static_cast<int>(stores))
      : "memory");
}

}  // namespace jfa::ptx
