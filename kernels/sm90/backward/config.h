// Tile shapes, buffers and roles of the two Hopper backwards.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/tiles.cuh"

namespace jfa::sm90 {

// K/V-stationary: a CTA keeps a block of keys and walks over the queries that see it.
// T: element type. kDim: head dimension in shared memory, 64, 128 or 256. kMask: windows, causal.
template <typename T_, int kDim_, bool kMask_>
struct KvStationaryConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kMask = kMask_;
  // Two warpgroups multiply. They share the keys of a tile, or, where dK and dV would not fit in registers, its
  // columns.
  static constexpr bool kSplitColumns = kDim > 128;
  static constexpr int kColumns = kSplitColumns ? kDim / 2 : kDim;  // of dK and dV, of a warpgroup
  static constexpr int kBlockN = kSplitColumns ? 64 : 128;          // keys of a tile
  static constexpr int kBlockM = kStatRows;                         // queries of a step
  static constexpr bool kTakeTurns = kDim == kSumColumns;           // with dQ, whose columns one warpgroup can hold
  static constexpr int kAddersOfSum = kTakeTurns ? 1 : 2;           // warpgroups that add to a block of dQ
  static constexpr int kPieces = kSplitColumns ? 2 : 1;             // of 64 columns of dQ, by each of them
  static constexpr int kPanels = kDim / 64;                         // columns of 64 elements, one swizzle atom wide
  static constexpr int kKeyBuffers = kSplitColumns ? 1 : 2;
  static constexpr int kTiles = 4;                                      // ring of tile descriptions
  static constexpr int kTilesAhead = 3;                                 // with 2, those who load wait for the list
  static constexpr int kStages = kDim == 64 ? 4 : kDim == 128 ? 2 : 1;  // ring of Q and dO blocks
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kThreads = 384;

  static constexpr int kPanelKv = kBlockN * 128;  // bytes of one panel
  static constexpr int kPanelQ = kBlockM * 128;
  static constexpr int kBytesKv = kPanels * kPanelKv;
  static constexpr int kBytesQ = kPanels * kPanelQ;
  static constexpr int kBytesStats = 2 * kStatRows * 4;
  static constexpr int kBytesScoreGrad = kBlockN * kBlockM * 2;
  static constexpr int kPanelGradient = 64 * 128;                    // of dK or dV
  static constexpr int kBytesStaging = kStatRows * kSumColumns * 4;  // of a warpgroup: a piece of dQ, or dK or dV
  static_assert(kBytesStaging >= kColumns / 64 * kPanelGradient);
  static constexpr int kOffsetV = kKeyBuffers * kBytesKv;
  static constexpr int kOffsetStages = kOffsetV + kBytesKv;
  static constexpr int kOffsetScoreGrad = kOffsetStages + kStages * 2 * kBytesQ;
  static constexpr int kOffsetStaging = kOffsetScoreGrad + 2 * kBytesScoreGrad;
  static constexpr int kOffsetStats = kOffsetStaging + 2 * kBytesStaging;
  static constexpr int kOffsetTiles = kOffsetStats + kStages * kBytesStats;
  static constexpr int kOffsetBarriers = kOffsetTiles + kTiles * 64;
  // Barriers in the order of their arrivals.
  static constexpr int kTileFull = 0, kKFull = kTileFull + kTiles, kVFull = kKFull + kKeyBuffers, kQFull = kVFull + 1;
  static constexpr int kGradOFull = kQFull + kStages, kStagingFree = kGradOFull + kStages;
  static constexpr int kTileEmpty = kStagingFree + 2, kKEmpty = kTileEmpty + kTiles, kVEmpty = kKEmpty + kKeyBuffers;
  static constexpr int kStageEmpty = kVEmpty + 1, kStaged = kStageEmpty + kStages, kSumsMade = kStaged + 2;
  static constexpr int kBarriers = kSumsMade + 1;
  static __device__ constexpr int arrivals(int barrier) {
    if (barrier < kTileEmpty) return 1;
    if (barrier < kKEmpty) return 1 + 2 + 8;
    return barrier < kStaged ? 8 : barrier < kSumsMade ? 4 : 2;
  }
  static constexpr int kSharedBytes = kOffsetBarriers + 8 * kBarriers;
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of a Hopper CTA");

  // The first key of a tile that a warpgroup has, and whether it has none of `keys`; then it multiplies only dQ.
  static __device__ int first_key(int warpgroup) { return kSplitColumns ? 0 : warpgroup * 64; }
  static __device__ bool is_keyless(int keys, int warpgroup) { return kDim == 128 && keys <= first_key(warpgroup); }
  // The first piece of dQ that a warpgroup multiplies.
  static __device__ int first_piece(int warpgroup) { return kTakeTurns ? 0 : warpgroup * kPieces; }
};

// Q-stationary: a CTA keeps all of a short broadcast Q of one head, and dQ in registers, and walks over keys.
// kBlocks: blocks of 64 queries, 1 or 2.
template <typename T_, int kDim_, int kBlocks_>
struct QStationaryConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kQueries = kBlocks * kStatRows;
  static constexpr int kBlockN = 64;  // keys of a tile
  static constexpr int kPanels = kDim / 64;
  static constexpr bool kLargeSum = kBlocks * kDim > 128;  // dQ takes 128 registers, not 64 or fewer
  static constexpr int kProducerRegisters = kLargeSum ? 32 : 64;
  static constexpr int kConsumerRegisters = kLargeSum ? 160 : 176;
  static constexpr int kSumRegisters = kLargeSum ? 160 : 96;
  static constexpr int kThreads = 512;  // one producer warp, two warpgroups with tiles of their own, one with dQ

  static constexpr int kPanelKv = kBlockN * 128;
  static constexpr int kPanelQ = kQueries * 128;
  static constexpr int kBytesKv = kPanels * kPanelKv;
  static constexpr int kBytesQ = kPanels * kPanelQ;
  static constexpr int kBytesV = kBytesKv > kPanelQ ? kBytesKv : kPanelQ;  // dS takes the place of V
  static constexpr int kBytesSlot = kBytesKv + kBytesV;
  static constexpr int kBytesStats = 2 * kQueries * 4;
  static constexpr int kPanelGradient = kBlockN * 128;  // of dK or dV; each panel has a staging buffer of its own
  static constexpr int kSlots = 96 * 1024 / kBytesSlot + (kBlocks == 1 ? 1 : 0);
  // Barriers for copies: one belongs to the tiles of one warpgroup, so that nobody skips one of its phases.
  static constexpr int kCopies = kSlots % 2 == 0 ? kSlots : 2 * kSlots;
  static constexpr int kOffsetGradO = kBytesQ;
  static constexpr int kOffsetSlots = kOffsetGradO + 2 * kBytesQ;
  static constexpr int kOffsetStaging = kOffsetSlots + kSlots * kBytesSlot;
  static constexpr int kOffsetStats = kOffsetStaging + 2 * kPanels * kPanelGradient;
  static constexpr int kOffsetTiles = kOffsetStats + 2 * kBytesStats;
  static constexpr int kOffsetBarriers = kOffsetTiles + kSlots * 16;
  // Barriers in the order of their arrivals. Of each warpgroup and panel: staged, staging free.
  static constexpr int kKFull = 0, kVFull = kKFull + kCopies, kGradOFull = kVFull + kCopies, kQFull = kGradOFull + 2;
  static constexpr int kStagingFree = kQFull + 1, kStaged = kStagingFree + 2 * kPanels;
  static constexpr int kScoreGradFull = kStaged + 2 * kPanels, kSlotEmpty = kScoreGradFull + kSlots;
  static constexpr int kGradOEmpty = kSlotEmpty + kSlots, kSumsMade = kGradOEmpty + 2, kBarriers = kSumsMade + 1;
  static __device__ constexpr int arrivals(int barrier) {
    if (barrier < kStaged) return 1;
    if (barrier < kGradOEmpty) return barrier < kSlotEmpty ? 4 : 4 + 1;
    return barrier < kSumsMade ? 8 : 128;
  }
  static constexpr int kSharedBytes = kOffsetBarriers + 8 * kBarriers;
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of a Hopper CTA");
};

}  // namespace jfa::sm90
