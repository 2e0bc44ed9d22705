// The merge of partial results over parts of the keys. Bound by memory: a thread merges eight columns of one row and
// head, and takes the LSE of its row from the cache. Runs on every architecture.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ptx/math.cuh"

namespace jfa {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxParts = 64;
constexpr int kColumns = 8;  // of a thread

struct Part {
  const void* o;  // [batch * rows, heads, head_dim]
  int64_t row_stride, head_stride;
  const float* lse;  // [batch, heads, rows]
};

// Twin of `Params` in src/cuda/combine.rs.
struct Params {
  Part parts[kMaxParts];
  void* o;  // [batch * rows, heads, head_dim]
  int64_t row_stride, head_stride;
  float* lse;  // [batch, heads, rows], or null
  int64_t batch, rows;
  int32_t num_parts, heads, head_dim, reserved;
};
static_assert(sizeof(Params) < 4096, "kernel parameters");

__device__ __forceinline__ float2 widen(__nv_bfloat162 x) { return __bfloat1622float2(x); }
__device__ __forceinline__ float2 widen(__half2 x) { return __half22float2(x); }

// The sum of `weight` times eight elements.
__device__ __forceinline__ void add(const float* from, float weight, float (&sum)[kColumns]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 x = reinterpret_cast<const float4*>(from)[half];
    sum[half * 4] = fmaf(weight, x.x, sum[half * 4]);
    sum[half * 4 + 1] = fmaf(weight, x.y, sum[half * 4 + 1]);
    sum[half * 4 + 2] = fmaf(weight, x.z, sum[half * 4 + 2]);
    sum[half * 4 + 3] = fmaf(weight, x.w, sum[half * 4 + 3]);
  }
}

template <typename T>
__device__ __forceinline__ void add(const T* from, float weight, float (&sum)[kColumns]) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const uint4 packed = *reinterpret_cast<const uint4*>(from);
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = widen(*reinterpret_cast<const Pair*>(&words[i]));
    sum[i * 2] = fmaf(weight, x.x, sum[i * 2]);
    sum[i * 2 + 1] = fmaf(weight, x.y, sum[i * 2 + 1]);
  }
}

__device__ __forceinline__ void store(const float (&x)[kColumns], float* to) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

template <typename T>
__device__ __forceinline__ void store(const float (&x)[kColumns], T* to) {
  *reinterpret_cast<uint4*>(to) = make_uint4(ptx::pack<T>(x[0], x[1]), ptx::pack<T>(x[2], x[3]),
                                             ptx::pack<T>(x[4], x[5]), ptx::pack<T>(x[6], x[7]));
}

template <typename P, typename T>
__device__ __forceinline__ void combine(const Params& p) {
  const uint64_t pieces = p.head_dim / kColumns, width = pieces * p.heads;  // pieces of a head, and of a row
  const uint64_t count = p.batch * p.rows * width, step = static_cast<uint64_t>(gridDim.x) * kThreads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t row = i / width, block = row / p.rows;
    const uint32_t piece = i % width, head = piece / static_cast<uint32_t>(pieces);
    const uint32_t column = piece % static_cast<uint32_t>(pieces) * kColumns;
    const int64_t at = (block * p.heads + head) * p.rows + row - block * p.rows;

    // fmaxf passes over NaN; the weight of that part is NaN nevertheless, and so is the sum.
    float max = -INFINITY;
    for (int part = 0; part < p.num_parts; ++part) max = fmaxf(max, p.parts[part].lse[at]);
    float total = 0, sum[kColumns] = {};
    for (int part = 0; part < p.num_parts; ++part) {
      const Part& from = p.parts[part];
      const float lse = from.lse[at];
      // A part without keys has nothing to say; what its O holds does not matter.
      const float weight = lse == -INFINITY ? 0.0f : ptx::ex2((lse - max) * 1.4426950408889634f);
      if (weight == 0) continue;
      total += weight;
      add(static_cast<const P*>(from.o) + row * from.row_stride + head * from.head_stride + column, weight, sum);
    }
    const float share = total == 0 ? 0.0f : 1 / total;
#pragma unroll
    for (float& x : sum) x *= share;
    store(sum, static_cast<T*>(p.o) + row * p.row_stride + head * p.head_stride + column);
    if (column == 0 && p.lse != nullptr) p.lse[at] = total == 0 ? -INFINITY : max + logf(total);
  }
}

}  // namespace
}  // namespace jfa

#define JFA_COMBINE(suffix, part_type, type)                             \
  extern "C" __global__ void __launch_bounds__(jfa::kThreads)            \
      jfa_combine_##suffix(const __grid_constant__ jfa::Params params) { \
    jfa::combine<part_type, type>(params);                               \
  }

JFA_COMBINE(bf16, __nv_bfloat16, __nv_bfloat16)
JFA_COMBINE(fp16, __half, __half)
JFA_COMBINE(fp32, float, float)
JFA_COMBINE(fp32_to_bf16, float, __nv_bfloat16)
JFA_COMBINE(fp32_to_fp16, float, __half)
