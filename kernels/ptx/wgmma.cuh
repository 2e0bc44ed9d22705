// Warpgroup matrix multiply-accumulate, m64nNk16 with fp32 accumulators (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions"). Shared-memory operands lie in 128-byte swizzle atoms: rows of 64 elements, atoms 1024-byte aligned.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace jfa::ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps what reads or writes an accumulator of kN floats from moving across this point.
template <int kN>
__device__ __forceinline__ void wgmma_pin(float* d) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Low word of a matrix descriptor: start address and leading-dimension byte offset, both in units of 16 bytes. The
// address is masked because the shared-window address of a cluster's other ranks carries higher bits.
__device__ __forceinline__ uint32_t wgmma_descriptor_low(uint32_t address, uint32_t leading_bytes) {
  return ((address & 0x3FFFF) >> 4) | ((leading_bytes >> 4) << 16);
}

// Adds the high word: eight rows every 1024 bytes, 128-byte swizzle.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t low) {
  constexpr uint32_t kHigh = (1024u >> 4) | (1u << 30);
  return (static_cast<uint64_t>(kHigh) << 32) | low;
}

// Operand lists: registers %0 .. %(N/2-1) of the accumulator.
#define JFA_WGMMA_D32                                                                                                \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%" \
  "30,%31}"
#define JFA_WGMMA_D64                                                                                                \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%" \
  "30,"                                                                                                              \
  "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
  "%59,%60,%61,%62,%63}"
#define JFA_F8(d, i)                                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define JFA_F32(d) JFA_F8(d, 0), JFA_F8(d, 8), JFA_F8(d, 16), JFA_F8(d, 24)
#define JFA_F64(d) JFA_F32(d), JFA_F8(d, 32), JFA_F8(d, 40), JFA_F8(d, 48), JFA_F8(d, 56)

// A and B from shared memory, A K-major.
#define JFA_WGMMA_SS(type, n, list, outputs, a, b, p, trans)                                                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." type \
               "." type " " list ", %" a ", %" b ", p, 1, 1, 0, %" trans ";\n}"                                   \
               : outputs                                                                                          \
               : "l"(a_descriptor), "l"(b_descriptor), "r"(accumulate), "n"(kTransB))
// A from registers, B from shared memory, MN-major.
#define JFA_WGMMA_RS(type, n, list, outputs, a0, a1, a2, a3, b, p)                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." type \
               "." type " " list ", {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b ", p, 1, 1, 1;\n}"                 \
               : outputs                                                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"(accumulate))

// d = A B (+ d if `accumulate`): d[N/2], A 64 x 16 and B 16 x N in shared memory; B K-major, or with N contiguous if
// `kTransB` is 1.
template <typename T, int kN, int kTransB = 0>
__device__ __forceinline__ void wgmma_ss(float* d, uint64_t a_descriptor, uint64_t b_descriptor, int accumulate) {
  static_assert(kN == 64 || kN == 128, "only these shapes are instantiated");
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (kN == 64 && kBf16) {
    JFA_WGMMA_SS("bf16", "64", JFA_WGMMA_D32, JFA_F32(d), "32", "33", "34", "35");
  } else if constexpr (kN == 64) {
    JFA_WGMMA_SS("f16", "64", JFA_WGMMA_D32, JFA_F32(d), "32", "33", "34", "35");
  } else if constexpr (kBf16) {
    JFA_WGMMA_SS("bf16", "128", JFA_WGMMA_D64, JFA_F64(d), "64", "65", "66", "67");
  } else {
    JFA_WGMMA_SS("f16", "128", JFA_WGMMA_D64, JFA_F64(d), "64", "65", "66", "67");
  }
}

// d = A B (+ d if `accumulate`): d[N/2], A 64 x 16 in registers, B 16 x N in shared memory with N contiguous.
template <typename T, int kN>
__device__ __forceinline__ void wgmma_rs(float* d, const uint32_t* a, uint64_t b_descriptor, int accumulate) {
  static_assert(kN == 64 || kN == 128, "only these shapes are instantiated");
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (kN == 64 && kBf16) {
    JFA_WGMMA_RS("bf16", "64", JFA_WGMMA_D32, JFA_F32(d), "32", "33", "34", "35", "36", "37");
  } else if constexpr (kN == 64) {
    JFA_WGMMA_RS("f16", "64", JFA_WGMMA_D32, JFA_F32(d), "32", "33", "34", "35", "36", "37");
  } else if constexpr (kBf16) {
    JFA_WGMMA_RS("bf16", "128", JFA_WGMMA_D64, JFA_F64(d), "64", "65", "66", "67", "68", "69");
  } else {
    JFA_WGMMA_RS("f16", "128", JFA_WGMMA_D64, JFA_F64(d), "64", "65", "66", "67", "68", "69");
  }
}

}  // namespace jfa::ptx
