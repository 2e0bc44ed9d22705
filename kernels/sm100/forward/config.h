// Tile shapes, buffers, roles and Tensor Memory of the Blackwell forward.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/cta.cuh"
#include "attention/tiles.cuh"

namespace jfa::sm100 {

// Optimisations that can be left out to count what each does; JFA_SWITCHES of build.rs sets the macro.
#ifndef JFA_SM100_FORWARD_SWITCHES
#define JFA_SM100_FORWARD_SWITCHES
#endif
struct ForwardSwitches {
  int exp2_fma = 4;         // of 16 exponentials, those a polynomial computes beside the special-function unit; even
  int rescale = 8;          // O is rescaled when a maximum has grown by this power of two; 0: for every block
  bool peel = true;         // blocks without a hidden key take code without a mask
  int slices = 2;           // parts of a block of P that are handed over one by one
  bool split_keys = true;   // both groups work on tiles of few queries, each on every second block of keys
  int static_percent = 50;  // tiles without a mask that are dealt ahead; 0: all are handed out; 100: none is
};

// T: element type. kDim: head dimension in shared memory, a multiple of 64. kMask: windows, causal, negative scale.
template <typename T_, int kDim_, bool kMask_, ForwardSwitches kSwitches_ = ForwardSwitches{JFA_SM100_FORWARD_SWITCHES}>
struct ForwardConfig {
  using T = T_;
  static constexpr ForwardSwitches kSwitches = kSwitches_;
  static constexpr int kDim = kDim_;
  static constexpr bool kMask = kMask_;
  static constexpr bool kPack = false;  // query heads do not share tiles
  static constexpr uint32_t kStaticPercent = kMask ? 0 : kSwitches.static_percent;
  static constexpr int kRows = 128;                       // of a product: the lanes of Tensor Memory
  static constexpr int kGroups = kDim <= 128 ? 2 : 1;     // blocks of kRows queries, each with a softmax warpgroup
  static constexpr int kBlockM = kRows * kGroups;         // queries of a tile
  static constexpr int kBlockN = kDim <= 128 ? 128 : 64;  // keys of a block
  static constexpr int kPanels = kDim / 64;               // columns of 64 elements, one swizzle atom wide
  static constexpr int kTiles = 4;                        // ring of tile descriptions
  static constexpr int kMessages = 2;                     // ring of what softmax tells the correction
  static constexpr int kThreads = 128 * (kGroups + 2);
  static constexpr int kRoleRegisters = 56;
  static constexpr int kSoftmaxRegisters = kGroups == 2 ? 184 : 240;
  static constexpr int kCorrectionRegisters = kGroups == 2 ? 88 : 128;
  static_assert(128 * (kRoleRegisters + kGroups * kSoftmaxRegisters + kCorrectionRegisters) <= 65536, "of an SM");

  // Tensor Memory: S of each group, P in its first columns; O of each group.
  static constexpr int kColumns = 512;
  static constexpr int kColumnsS = 128;
  static constexpr int kColumnO = kGroups * kColumnsS;
  static_assert(kBlockN <= kColumnsS && kColumnO + kGroups * kDim <= kColumns, "Tensor Memory of a Blackwell SM");

  static constexpr int kPanelQ = kRows * 128;  // bytes of one panel of a group's Q or O
  static constexpr int kPanelKv = kBlockN * 128;
  static constexpr int kBytesQ = kPanels * kPanelQ;  // of a group
  static constexpr int kBytesSlot = kPanels * kPanelKv;
  static constexpr int kLimit = 227 * 1024, kRest = 3 * 1024;  // shared memory of a CTA, and of it all but tensors
  static constexpr int kMostSlots = (kLimit - kRest - 2 * kGroups * kBytesQ) / kBytesSlot;
  static constexpr int kSlots = kMostSlots < 8 ? kMostSlots : 8;  // ring of K and V blocks
  static_assert(kSlots >= 3, "V of a block, K of the next, and one on its way");
  static constexpr int kOffsetO = kGroups * kBytesQ;
  static constexpr int kOffsetRing = 2 * kOffsetO;
  static constexpr int kOffsetMessages = kOffsetRing + kSlots * kBytesSlot;
  static constexpr int kOffsetTiles = kOffsetMessages + kGroups * kMessages * kRows * 4;
  static constexpr int kOffsetBarriers = kOffsetTiles + kTiles * 64;

  // Barriers in the order of their arrivals: of one thread, of the four warps of a warpgroup, of more.
  static constexpr int kSlotFull = 0, kSlotEmpty = kSlotFull + kSlots, kTileFull = kSlotEmpty + kSlots;
  static constexpr int kTileLoaded = kTileFull + kTiles;  // the load warp has begun with a tile
  static constexpr int kQEmpty = kTileLoaded + kTiles;    // all scores of a tile are computed
  static constexpr int kQFull = kQEmpty + kTiles, kSFull = kQFull + kGroups, kOFull = kSFull + kGroups;
  static constexpr int kStagingEmpty = kOFull + kGroups, kResponse = kStagingEmpty + kGroups;
  static constexpr int kMessageFull = kResponse + 1, kMessageEmpty = kMessageFull + kGroups * kMessages;
  static constexpr int kStagingFull = kMessageEmpty + kGroups * kMessages;
  static constexpr int kPFull = kStagingFull + kGroups;  // first slice: also that O may be written
  static constexpr int kTileEmpty = kPFull + kGroups * kSwitches.slices, kBarriers = kTileEmpty + kTiles;
  static __device__ constexpr int arrivals(int barrier) {
    constexpr int kWarps = 4;
    if (barrier < kMessageFull) return 1;
    if (barrier >= kTileEmpty) return 3 + kWarps * (kGroups + 1);
    return barrier >= kPFull && (barrier - kPFull) % kSwitches.slices == 0 ? 2 * kWarps : kWarps;
  }

  static constexpr int kOffsetResponse = (kOffsetBarriers + 8 * kBarriers + 15) / 16 * 16;  // of launch control
  static constexpr int kOffsetColumns = kOffsetResponse + 16;  // address of the Tensor Memory
  static constexpr int kSharedBytes = kOffsetColumns + 4;
  static_assert(kSharedBytes <= kLimit, "shared memory of a Blackwell CTA");
};

// Shared-memory addresses of a CTA.
template <typename C>
struct ForwardShared : CtaShared<C, ForwardTile> {
  using CtaShared<C, ForwardTile>::base;

  __device__ uint32_t q(int group) const { return base + group * C::kBytesQ; }
  __device__ uint32_t o(int group) const { return base + C::kOffsetO + group * C::kBytesQ; }
  __device__ uint32_t slot(int i) const { return base + C::kOffsetRing + i * C::kBytesSlot; }
  __device__ uint32_t message(int group, int i) const {
    return base + C::kOffsetMessages + (group * C::kMessages + i) * C::kRows * 4;
  }
  __device__ uint32_t response() const { return base + C::kOffsetResponse; }
  __device__ uint32_t columns() const { return base + C::kOffsetColumns; }
};

}  // namespace jfa::sm100
