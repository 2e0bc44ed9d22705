// What the warpgroups of both Hopper backwards do with scores and gradients. Scores are transposed: the rows of an
// accumulator are 64 keys, its columns 64 queries. A thread holds rows 16 w + lane / 4 of warp w and the one eight
// below, and of these the columns 8 j + 2 (lane % 4) + {0, 1}.
#pragma once

#include "backward/tiles.cuh"
#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"

namespace jfa::sm90 {

// d[64 x kN] = A B^T over kDim: A and B are rows of one panel after the other, `a_panel` and `b_panel` bytes apart.
template <typename T, int kDim, int kN>
JFA_INLINE void multiply_rows(float* d, uint32_t a_rows, int a_panel, uint32_t b_rows, int b_panel) {
  const uint32_t a = ptx::wgmma_descriptor_low(a_rows, 16), b = ptx::wgmma_descriptor_low(b_rows, 16);
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const uint32_t inner = step % 4 * 2;
    ptx::wgmma_ss<T, kN>(d, ptx::wgmma_descriptor(a + step / 4 * (a_panel / 16) + inner),
                         ptx::wgmma_descriptor(b + step / 4 * (b_panel / 16) + inner), step > 0);
  }
}

// d[64 x kN] (+)= A B: A in registers, 64 x kK; B are kK rows from `b_rows` on, `b_panel` bytes from panel to panel.
template <typename T, int kN, int kK>
JFA_INLINE void multiply_columns(float* d, const uint32_t* a, uint32_t b_rows, int b_panel, int accumulate) {
  const uint32_t b = ptx::wgmma_descriptor_low(b_rows, b_panel);
#pragma unroll
  for (int step = 0; step < kK / 16; ++step) {
    ptx::wgmma_rs<T, kN>(d, a + 4 * step, ptx::wgmma_descriptor(b + step * (16 * 128 / 16)), step > 0 ? 1 : accumulate);
  }
}

// Sets the scores of keys at and beyond `keys` to `hidden`.
JFA_INLINE void hide_keys(float* s, int keys, float hidden) {
  const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (row + i % 4 / 2 * 8 >= keys) s[i] = hidden;
  }
}

// P = 2^(scale_log2 S - LSE), in place. `stats`: the block's statistics in shared memory.
JFA_INLINE void probabilities(float* s, float scale_log2, uint32_t stats) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 lse = ptx::load_shared2(stats + (threadIdx.x % 4 * 2 + 8 * j) * 4);
    s[4 * j] = ptx::ex2(fmaf(s[4 * j], scale_log2, -lse.x));
    s[4 * j + 1] = ptx::ex2(fmaf(s[4 * j + 1], scale_log2, -lse.y));
    s[4 * j + 2] = ptx::ex2(fmaf(s[4 * j + 2], scale_log2, -lse.x));
    s[4 * j + 3] = ptx::ex2(fmaf(s[4 * j + 3], scale_log2, -lse.y));
  }
}

// P packed as an operand.
template <typename T>
JFA_INLINE void pack_probabilities(const float* s, uint32_t* packed) {
#pragma unroll
  for (int i = 0; i < 16; ++i) packed[i] = ptx::pack<T>(s[2 * i], s[2 * i + 1]);
}

// dS = P (dP - delta), packed as an operand.
template <typename T>
JFA_INLINE void score_gradients(const float* s, const float* dp, uint32_t stats, uint32_t* packed) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 delta = ptx::load_shared2(stats + (kStatRows + threadIdx.x % 4 * 2 + 8 * j) * 4);
    packed[2 * j] = ptx::pack<T>(s[4 * j] * (dp[4 * j] - delta.x), s[4 * j + 1] * (dp[4 * j + 1] - delta.y));
    packed[2 * j + 1] =
        ptx::pack<T>(s[4 * j + 2] * (dp[4 * j + 2] - delta.x), s[4 * j + 3] * (dp[4 * j + 3] - delta.y));
  }
}

// Writes dS of 16 * kSteps queries, transposed, to rows of 64 keys at `rows`, where products read it as dS^T.
template <int kSteps>
JFA_INLINE void store_transposed(uint32_t rows, const uint32_t* packed) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint32_t row = lane % 8 + lane / 16 * 8, chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    ptx::stmatrix_x4_trans(rows + row * 128 + chunk * 16 + k * (16 * 128), packed[4 * k], packed[4 * k + 1],
                           packed[4 * k + 2], packed[4 * k + 3]);
  }
}

// Rounds 64 columns of a warp's 16 rows to 2 KB of its shared memory.
template <typename T>
JFA_INLINE void round_panel(const float* x, float factor, uint32_t staging) {
  const int lane = threadIdx.x % 32;
  const uint32_t row = staging + lane / 8 % 2 * 1024 + lane % 8 * 128;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float* y = x + 8 * j;
    ptx::stmatrix_x4(row + ((2 * j + lane / 16) ^ (lane % 8)) * 16, ptx::pack<T>(y[0] * factor, y[1] * factor),
                     ptx::pack<T>(y[2] * factor, y[3] * factor), ptx::pack<T>(y[4] * factor, y[5] * factor),
                     ptx::pack<T>(y[6] * factor, y[7] * factor));
  }
}

}  // namespace jfa::sm90
