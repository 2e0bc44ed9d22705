// Tile shapes, buffers, Tensor Memory and barriers of the Blackwell backward, for one CTA or a pair of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/cta.cuh"
#include "attention/tiles.cuh"

namespace jfa::sm100 {

// Optimisations that can be left out to count what each does; JFA_SWITCHES of build.rs sets the macro.
#ifndef JFA_SM100_BACKWARD_SWITCHES
#define JFA_SM100_BACKWARD_SWITCHES
#endif
struct BackwardSwitches {
  bool peel = true;             // only blocks that are cut compare positions
  int early_slices = 2;         // of dQ, which leave Tensor Memory before they are staged
  int sum_stages = 2;           // buffers of dQ's slices
  bool store_in_flight = true;  // the sum before may be under way meanwhile
};

// T: element type. kDim: head dimension in shared memory, 64, 128 or 256. kCtas: 1, or 2 for pairs of CTAs with
// adjacent blocks of keys, which share every product: each has half of the keys, of dS for all keys half of the
// queries.
template <typename T_, int kDim_, int kCtas_,
          BackwardSwitches kSwitches_ = BackwardSwitches{JFA_SM100_BACKWARD_SWITCHES}>
struct BackwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr int kCtas = kCtas_;
  static constexpr bool kPair = kCtas == 2;
  static_assert(kCtas == 1 || kDim == 128);
  static constexpr BackwardSwitches kSwitches = kSwitches_;
  static constexpr bool kMask = true;
  static constexpr int kBlockN = 128;                    // keys of a tile
  static constexpr int kBlockM = kDim > 128 ? 64 : 128;  // queries of a step
  static constexpr int kBlocks = kBlockM / kStatRows;    // blocks of statistics of a step
  static constexpr int kHalf = kBlockM / 2;              // queries of a warpgroup that computes
  // dK, dV and dQ of 256 columns take two passes over the queries of a tile.
  static constexpr int kColumns = kDim > 128 ? 128 : kDim;
  static constexpr int kPasses = kDim / kColumns;
  static constexpr int kPanels = kDim / 64;  // columns of 64 elements, one swizzle atom wide
  static constexpr int kTiles = 2;           // ring of tile descriptions: the next one is taken early, no more
  static constexpr int kStages = kDim > 128 || kPair ? 1 : 2;
  static constexpr int kThreads = 512;
  static constexpr int kReductionRegisters = 96;
  static constexpr int kComputeRegisters = 168;
  static constexpr int kOtherRegisters = 80;

  // Tensor Memory: S, then P in its place, dP, dV, dK, dQ. P of each warpgroup lies in its own columns of S, but
  // packed in those of a pair, where dQ takes the rest. dS of a pair lies in the place of dP.
  static constexpr int kTensorS = 0;
  static constexpr int kTensorGradP = kBlockM;
  static constexpr int kTensorGradV = 2 * kBlockM;
  static constexpr int kTensorGradK = kTensorGradV + kColumns;
  static constexpr bool kSumAliases = kPair || kDim == 128;
  static constexpr int kTensorSum = kPair ? 64 : kSumAliases ? kTensorGradP : kTensorGradK + kColumns;
  static constexpr int kSumColumnsOfWarp = kPair ? 64 : kColumns;
  static_assert(kTensorGradK + kColumns <= 512 && kTensorSum + kSumColumnsOfWarp <= 512, "columns of Tensor Memory");
  static constexpr int kProbPitch = kPair ? kHalf / 2 : kHalf;  // columns from the P of one warpgroup to the other's

  // dQ leaves in slices of columns; a warp has one or two times 16 rows.
  static constexpr int kSliceColumns = kPair ? 16 : 32;
  static constexpr int kSlices = kSumColumnsOfWarp / kSliceColumns;
  static constexpr int kSumRows = kPair || kBlockM == 128 ? 2 : 1;
  static constexpr int kSliceFloats = kSumRows * kSliceColumns / 2;  // of a thread
  static constexpr int kHeldSlices = kSwitches.early_slices > 1 ? kSwitches.early_slices : 1;
  static_assert(kSwitches.early_slices <= 2 && kHeldSlices <= kSlices);

  static constexpr int kPanelKv = kBlockN * 128;  // bytes of one panel
  static constexpr int kPanelQ = kBlockM * 128;
  static constexpr int kPanelRowsQ = kPair ? kPanelQ / 2 : kPanelQ;  // of the operands of S and dP
  static constexpr int kBytesKv = kPanels * kPanelKv;
  static constexpr int kBytesQ = kPanels * kPanelRowsQ;
  static constexpr int kBytesStats = 2 * kBlockM * 4;        // of a step; there are two buffers
  static constexpr int kBytesSlice = kSliceFloats * 32 * 4;  // of a warp
  // dS, keys by queries: a pair's CTA has half of the queries of all keys, and what it sends.
  static constexpr int kBytesScoreGrad = kPair ? 3 * kPanelKv : kBlocks * kPanelKv;
  static constexpr int kOffsetV = kBytesKv;
  static constexpr int kOffsetPairK = kOffsetV + kBytesKv;  // K of both CTAs, half of the columns
  static constexpr int kOffsetQ = kOffsetPairK + (kPair ? kBytesKv : 0);
  static constexpr int kOffsetGradO = kOffsetQ + kStages * kBytesQ;
  static constexpr int kOffsetColumnsQ = kOffsetGradO + kBytesQ;  // all rows of Q and dO, half of the columns
  static constexpr int kOffsetScoreGrad = kOffsetColumnsQ + (kPair ? 2 * kPanelQ : 0);
  static constexpr int kOffsetSlices = kOffsetScoreGrad + kBytesScoreGrad;
  static constexpr int kOffsetStats = kOffsetSlices + 4 * kSwitches.sum_stages * kBytesSlice;
  static constexpr int kOffsetTiles = kOffsetStats + 2 * kBytesStats;
  static constexpr int kOffsetResponse = kOffsetTiles + kTiles * 64;
  static constexpr int kOffsetTensor = kOffsetResponse + 16;
  static constexpr int kOffsetBarriers = kOffsetTensor + 16;
  // Warpgroups that store dK and dV, each a panel at a time, through the rows of dS that its warps write.
  static constexpr int kStorers = kBlockM / 64;

  // Barriers in the order of their arrivals.
  static constexpr int kTileFull = 0, kQFull = kTileFull + kTiles, kQEmpty = kQFull + kStages,
                       kStatsFull = kQEmpty + kStages;
  static constexpr int kKFull = kStatsFull + 2, kVFull = kKFull + 1, kKeysEmpty = kVFull + 1;
  static constexpr int kGradOFull = kKeysEmpty + 1, kGradOEmpty = kGradOFull + 1, kScoresFull = kGradOEmpty + 1;
  static constexpr int kGradPFull = kScoresFull + 1, kScoreGradEmpty = kGradPFull + 1, kSumFull = kScoreGradEmpty + 1;
  static constexpr int kGradientsFull = kSumFull + 1, kTurn = kGradientsFull + 1, kLaunchFull = kTurn + 1;
  static constexpr int kLaunchEmpty = kLaunchFull + 1, kQColumnsFull = kLaunchEmpty + 1;
  static constexpr int kQColumnsEmpty = kQColumnsFull + 1, kPeerFull = kQColumnsEmpty + 1, kSent = kPeerFull + 1;
  static constexpr int kSumsMade = kSent + 1, kEnded = kSumsMade + 1, kSumEmpty = kEnded + 1;
  static constexpr int kStatsEmpty = kSumEmpty + 1, kProbFull = kStatsEmpty + 2, kGradientsEmpty = kProbFull + 1;
  static constexpr int kScoresRead = kGradientsEmpty + 1, kOperandFull = kScoresRead + 1;
  static constexpr int kScoreGradFull = kOperandFull + 1, kTileEmpty = kScoreGradFull + 1;
  static constexpr int kBarriers = kTileEmpty + kTiles;
  static constexpr int kSharedBytes = kOffsetBarriers + 8 * kBarriers;
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of a Blackwell CTA");

  // `others`: the thread that issues products, the relay, the keeper of the order, as far as the CTA has them.
  static __device__ constexpr int arrivals(int barrier, int others) {
    if (barrier < kSumsMade) return 1;
    if (barrier < kStatsEmpty) return barrier < kSumEmpty ? 4 : 4 * kCtas;
    if (barrier < kScoreGradFull) return barrier < kProbFull ? 8 : 8 * kCtas;
    return barrier == kScoreGradFull ? (kPair ? 2 * (4 + 1) : 8) : 1 + 8 + 4 + others;
  }
};

// Shared-memory addresses of a CTA.
template <typename C>
struct BackwardShared : CtaShared<C, BackwardTile> {
  using CtaShared<C, BackwardTile>::base;
  uint32_t rank;  // in the pair

  __device__ uint32_t k() const { return base; }
  __device__ uint32_t v() const { return base + C::kOffsetV; }
  __device__ uint32_t pair_k() const { return base + C::kOffsetPairK; }
  __device__ uint32_t q(int stage) const { return base + C::kOffsetQ + stage * C::kBytesQ; }
  __device__ uint32_t grad_o() const { return base + C::kOffsetGradO; }
  __device__ uint32_t q_columns(int stage) const { return C::kPair ? base + C::kOffsetColumnsQ : q(stage); }
  __device__ uint32_t grad_o_columns() const { return C::kPair ? base + C::kOffsetColumnsQ + C::kPanelQ : grad_o(); }
  __device__ uint32_t score_grad() const { return base + C::kOffsetScoreGrad; }
  // Where the warps of a warpgroup write dS of their 128 keys: of a pair, what the other CTA needs goes to the end.
  __device__ uint32_t score_grad_of(uint32_t warpgroup) const {
    if (!C::kPair) return score_grad() + (C::kBlockM > 64 ? warpgroup * C::kPanelKv : 0);
    return score_grad() + (warpgroup == rank ? rank : 2) * C::kPanelKv;
  }
  __device__ uint32_t slice(int warp, int stage) const {
    return base + C::kOffsetSlices + (warp * C::kSwitches.sum_stages + stage) * C::kBytesSlice;
  }
  __device__ uint32_t stats(int i) const { return base + C::kOffsetStats + i * C::kBytesStats; }
  __device__ uint32_t response() const { return base + C::kOffsetResponse; }
  __device__ uint32_t tensor() const { return base + C::kOffsetTensor; }  // holds the address in Tensor Memory
  // Places of the launch that the CTA had, and a word of finish_sums().
  __device__ uint32_t* places() const { return static_cast<uint32_t*>(__cvta_shared_to_generic(tensor() + 4)); }
};

}  // namespace jfa::sm100
