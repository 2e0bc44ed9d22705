// Tensor Memory and the matrix instructions that use it (PTX ISA, "TensorCore 5th Generation Instructions"). kCtas is
// the `.cta_group`: 1, or 2 for a pair of CTAs, and the same in a whole kernel. A Tensor Memory address is
// lane << 16 | column; a warp reaches the 32 lanes that begin at 32 (warp % 4).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ptx/operands.cuh"

namespace jfa::ptx {

// "tcgen05.alloc", by one warp (of each CTA): the address goes to `dst` in shared memory. Columns: 32, 64, ... 512.
template <int kCtas>
__device__ __forceinline__ void tmem_alloc(uint32_t dst, uint32_t columns) {
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(dst), "r"(columns), "n"(kCtas)
               : "memory");
}

template <int kCtas>
__device__ __forceinline__ void tmem_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtas));
}

template <int kCtas>
__device__ __forceinline__ void tmem_dealloc(uint32_t address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns), "n"(kCtas)
               : "memory");
}

// "tcgen05.fence": around the barrier by which threads hand Tensor Memory over.
__device__ __forceinline__ void tcgen05_fence_before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

__device__ __forceinline__ void tcgen05_fence_after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// "tcgen05.ld", shape 32x32b: register i is column i of the thread's lane; 4 bytes each. To be waited for.
template <int kN, typename R>
__device__ __forceinline__ void tmem_load(R* r, uint32_t address) {
  static_assert(sizeof(R) == 4 && (kN == 16 || kN == 32 || kN == 64));
  auto* x = reinterpret_cast<uint32_t*>(r);
#define JFA_TMEM_LOAD(n)                                                                  \
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x" #n ".b32 {" JFA_LIST##n "}, [%" #n "];" \
               : JFA_OPERANDS##n("=r", x, 0)                                              \
               : "r"(address)                                                             \
               : "memory")
  if constexpr (kN == 16) {
    JFA_TMEM_LOAD(16);
  } else if constexpr (kN == 32) {
    JFA_TMEM_LOAD(32);
  } else {
    JFA_TMEM_LOAD(64);
  }
}

// The same, shape 16x256b: 8 kN columns of the 16 lanes that begin at the address. Of columns 8 j to 8 j + 7 a thread
// has {2 (t % 4), 2 (t % 4) + 1} of lane t / 4 in registers 4 j and 4 j + 1, and of lane t / 4 + 8 in the next two.
template <int kN>
__device__ __forceinline__ void tmem_load_rows(float* r, uint32_t address) {
  static_assert(kN == 2 || kN == 4);
  auto* x = reinterpret_cast<uint32_t*>(r);
#define JFA_TMEM_LOAD_ROWS(n, registers)                                                                   \
  asm volatile("tcgen05.ld.sync.aligned.16x256b.x" #n ".b32 {" JFA_LIST##registers "}, [%" #registers "];" \
               : JFA_OPERANDS##registers("=r", x, 0)                                                       \
               : "r"(address)                                                                              \
               : "memory")
  if constexpr (kN == 2) {
    JFA_TMEM_LOAD_ROWS(2, 8);
  } else {
    JFA_TMEM_LOAD_ROWS(4, 16);
  }
}

// "tcgen05.st", shape 32x32b: the other way.
template <int kN, typename R>
__device__ __forceinline__ void tmem_store(uint32_t address, const R* r) {
  static_assert(sizeof(R) == 4 && (kN == 16 || kN == 32));
  auto* x = reinterpret_cast<const uint32_t*>(r);
#define JFA_TMEM_STORE(n)                                                            \
  asm volatile("tcgen05.st.sync.aligned.32x32b.x" #n ".b32 [%" #n "], {" JFA_LIST##n \
               "};" ::JFA_OPERANDS##n("r", x, 0),                                    \
               "r"(address)                                                          \
               : "memory")
  if constexpr (kN == 16) {
    JFA_TMEM_STORE(16);
  } else {
    JFA_TMEM_STORE(32);
  }
}

// "tcgen05.wait": for this thread's loads, of which the last kN registers at `r` are not used before it.
template <int kN, typename R>
__device__ __forceinline__ void tmem_wait_load(R* r) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  auto* x = reinterpret_cast<uint32_t*>(r);
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

__device__ __forceinline__ void tmem_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// The instruction descriptor of kind::f16 with fp32 sums: D[m, n] (+)= A B of type T. m is that of all kCtas CTAs. A
// operand is K-major, or with M or N contiguous if it is `transposed`.
template <typename T>
__host__ __device__ constexpr uint32_t mma_descriptor(int m, int n, bool a_transposed = false,
                                                      bool b_transposed = false) {
  constexpr uint32_t kType = std::is_same_v<T, __nv_bfloat16> ? 1 : 0;
  return 1u << 4 | kType << 7 | kType << 10 | uint32_t{a_transposed} << 15 | uint32_t{b_transposed} << 16 |
         static_cast<uint32_t>(n) >> 3 << 17 | static_cast<uint32_t>(m) >> 4 << 24;
}

// Low word of a shared-memory descriptor: start address and, for operands that are not K-major, the bytes between
// panels of 64 elements, both in units of 16 bytes.
__device__ __forceinline__ uint32_t smem_descriptor_low(uint32_t address, uint32_t panel_bytes) {
  return ((address & 0x3FFFF) >> 4) | ((panel_bytes >> 4) << 16);
}

// Adds the high word: eight rows every 1024 bytes, 128-byte swizzle.
__device__ __forceinline__ uint64_t smem_descriptor(uint32_t low) {
  constexpr uint32_t kHigh = (1024u >> 4) | (1u << 14) | (2u << 29);
  return (static_cast<uint64_t>(kHigh) << 32) | low;
}

// "tcgen05.mma", by one thread: D = A B (+ D if `accumulate`), 16 elements of K; D in Tensor Memory.
#define JFA_TCGEN05_MMA(a_operand, a_constraint)                                                               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::%5.kind::f16 [%0], " a_operand \
               ", %2, %3, p;\n}" ::"r"(d),                                                                     \
               a_constraint(a), "l"(b), "r"(descriptor), "r"(accumulate), "n"(kCtas)                           \
               : "memory")

// A and B in shared memory.
template <int kCtas>
__device__ __forceinline__ void mma_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor, int accumulate) {
  JFA_TCGEN05_MMA("%1", "l");
}

// A in Tensor Memory, two elements a column.
template <int kCtas>
__device__ __forceinline__ void mma_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t descriptor, int accumulate) {
  JFA_TCGEN05_MMA("[%1]", "r");
}

// "tcgen05.commit": one arrival at `barrier` when all earlier products of this thread are complete.
template <int kCtas>
__device__ __forceinline__ void mma_commit(uint32_t barrier) {
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier), "n"(kCtas)
               : "memory");
}

// The same in every CTA of the cluster whose bit of `ctas` is set.
template <int kCtas>
__device__ __forceinline__ void mma_commit_multicast(uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
          barrier),
      "h"(ctas), "n"(kCtas)
      : "memory");
}

}  // namespace jfa::ptx
