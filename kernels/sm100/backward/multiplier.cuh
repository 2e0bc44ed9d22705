// The warp of the Blackwell backward that issues the products, by one thread. docs/backward.md has their order and what
// each waits for.
#pragma once

#include "ptx/tcgen05.cuh"
#include "sm100/backward/producer.cuh"

namespace jfa::sm100 {

template <typename C>
struct Multiplier {
  using T = typename C::T;
  static constexpr int kKeys = C::kCtas * C::kBlockN;  // of the CTAs together
  static constexpr uint32_t kScores = ptx::mma_descriptor<T>(kKeys, C::kBlockM);
  static constexpr uint32_t kGradients = ptx::mma_descriptor<T>(kKeys, C::kColumns, false, true);
  static constexpr uint32_t kSums = ptx::mma_descriptor<T>(C::kBlockM, C::kColumns, true, true);

  const BackwardParams& p;
  const BackwardShared<C> shared;
  const uint32_t tensor;
  int pass = 0;
  uint32_t steps = 0, sums = 0;
  Ring<C::kStages> stage, grad_k_stage;

  __device__ void run() {
    BackwardTiles<C> tiles{shared};
    uint32_t passes = 0;
    for (uint32_t phase = 0;; phase ^= 1) {
      const BackwardTile& t = tiles.wait();
      if (ptx::uniform(t.keys) == 0) break;
      const int count = ptx::uniform(steps_of<C>(t)) * p.group;
      tiles.release_by_warp();
      wait(C::kKFull, phase);
#pragma unroll 1
      for (pass = 0; pass < C::kPasses; ++pass) {
#pragma unroll 1
        for (int step = 0; step < count; ++step) {
          const bool first = step == 0;
          if (C::kStages == 1 && !C::kPair && !first) multiply_sum_and_grad_k(step == 1);
          multiply_scores();
          if (first && pass == 0) wait(C::kVFull, phase);
          if constexpr (C::kPair) {
            if (!first) multiply_grad_k(step == 1);
            multiply_grad_p();
            if (!first) multiply_sum();
          } else {
            if (C::kStages > 1 && !first) multiply_sum_and_grad_k(step == 1);
            multiply_grad_p();
          }
          if (first) wait(C::kGradientsEmpty, passes & 1 ^ 1);
          multiply_grad_v(first);
          ++steps;
        }
        if constexpr (C::kPair) {
          multiply_grad_k(count == 1);
          multiply_sum();
        } else {
          multiply_sum_and_grad_k(count == 1);
        }
        commit(C::kGradientsFull);
        ++passes;
      }
      commit(C::kKeysEmpty);
    }
  }

  __device__ void wait(int barrier, uint32_t parity) const {
    if constexpr (C::kPair) {
      ptx::mbarrier_wait_cluster(shared.barrier(barrier), parity);
    } else {
      shared.wait(barrier, parity);
    }
    ptx::tcgen05_fence_after();
  }

  // One arrival in each CTA when everything before is complete.
  __device__ void commit(int barrier) const {
    if (!ptx::elect()) return;
    if constexpr (C::kPair) {
      ptx::mma_commit_multicast<2>(shared.barrier(barrier), 3);
    } else {
      ptx::mma_commit<1>(shared.barrier(barrier));
    }
  }

  // Operands in panels of 64 columns, the step-th 16 of K: along the rows, or rows by rows.
  static __device__ auto along_rows(uint32_t address, int panel) {
    const uint32_t low = ptx::smem_descriptor_low(address, 16);
    return [=](int step) { return ptx::smem_descriptor(low + step / 4 * (panel / 16) + step % 4 * 2); };
  }
  static __device__ auto by_rows(uint32_t address, int panel) {
    const uint32_t low = ptx::smem_descriptor_low(address, panel);
    return [=](int step) { return ptx::smem_descriptor(low + step * (16 * 128 / 16)); };
  }
  // 16-bit operands in Tensor Memory: half of K lies `pitch` columns behind the other.
  __device__ auto in_tensor(uint32_t column, int pitch) const {
    const uint32_t address = tensor + column;
    return [=](int step) { return address + step / (C::kHalf / 16) * pitch + step % (C::kHalf / 16) * 8; };
  }

  // D = A B (+ D) over kSteps times 16 of K.
  template <int kSteps, typename A, typename B>
  __device__ void multiply(uint32_t column, uint32_t descriptor, A a, B b, bool accumulate) const {
    if (!ptx::elect()) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int adds = step > 0 || accumulate;
      if constexpr (sizeof(a(0)) == 4) {
        ptx::mma_ts<C::kCtas>(tensor + column, a(step), b(step), descriptor, adds);
      } else {
        ptx::mma_ss<C::kCtas>(tensor + column, a(step), b(step), descriptor, adds);
      }
    }
  }

  // Waits until dQ of the last step was read.
  __device__ void wait_sum_read() const { wait(C::kSumEmpty, sums & 1 ^ 1); }

  __device__ void multiply_scores() {
    wait(C::kQFull + stage.index, stage.phase);
    if (C::kPair) wait_sum_read();
    multiply<C::kDim / 16>(C::kTensorS, kScores, along_rows(shared.k(), C::kPanelKv),
                           along_rows(shared.q(stage.index), C::kPanelRowsQ), false);
    commit(C::kScoresFull);
    if (C::kPair) commit(C::kQEmpty);
    stage.advance();
  }

  __device__ void multiply_grad_p() const {
    wait(C::kGradOFull, steps & 1);
    if (C::kSumAliases && !C::kPair) wait_sum_read();
    multiply<C::kDim / 16>(C::kTensorGradP, kScores, along_rows(shared.v(), C::kPanelKv),
                           along_rows(shared.grad_o(), C::kPanelRowsQ), false);
    commit(C::kGradPFull);
  }

  __device__ void multiply_grad_v(bool first) const {
    wait(C::kProbFull, steps & 1);
    multiply<C::kBlockM / 16>(C::kTensorGradV, kGradients, in_tensor(C::kTensorS, C::kProbPitch),
                              by_rows(shared.grad_o_columns() + pass * 2 * C::kPanelQ, C::kPanelQ), !first);
    commit(C::kGradOEmpty);
  }

  // dQ and dK of the step before.
  __device__ void multiply_sum_and_grad_k(bool first) {
    multiply_sum();
    multiply_grad_k(first);
    commit(C::kScoreGradEmpty);
  }

  __device__ void multiply_sum() {
    wait(C::kScoreGradFull, sums & 1);
    if (C::kPair) wait(C::kScoresRead, scores_read_parity());
    if (!C::kSumAliases || C::kPair) wait_sum_read();
    const uint32_t keys = C::kPair ? shared.pair_k() : shared.k() + pass * 2 * C::kPanelKv;
    multiply<kKeys / 16>(C::kTensorSum, kSums, by_rows(shared.score_grad(), C::kPanelKv), by_rows(keys, C::kPanelKv),
                         false);
    commit(C::kSumFull);
    if (C::kPair) commit(C::kScoreGradEmpty);
    ++sums;
  }

  __device__ void multiply_grad_k(bool first) {
    const uint32_t q = shared.q_columns(grad_k_stage.index) + pass * 2 * C::kPanelQ;
    if constexpr (C::kPair) {
      wait(C::kOperandFull, grad_k_stage.phase);
      wait(C::kQColumnsFull, grad_k_stage.phase);
      multiply<C::kBlockM / 16>(C::kTensorGradK, kGradients, in_tensor(C::kTensorGradP, C::kHalf),
                                by_rows(q, C::kPanelQ), !first);
      commit(C::kQColumnsEmpty);
    } else {
      multiply<C::kBlockM / 16>(C::kTensorGradK, kGradients, along_rows(shared.score_grad(), C::kPanelKv),
                                by_rows(q, C::kPanelQ), !first);
      commit(C::kQEmpty + grad_k_stage.index);
    }
    grad_k_stage.advance();
  }

  // Scores are a step ahead of sums, but at the end.
  __device__ uint32_t scores_read_parity() const { return (stage.phase ^ 1) & 1; }
};

}  // namespace jfa::sm100
