// Tile shapes, buffers, roles and Tensor Memory of the Blackwell forward.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/tiles.cuh"

namespace jfa::sm100 {

// Optimisations that can be left out to count what each does; JFA_SWITCHES of build.rs sets the macros.
#ifndef JFA_SM100_FORWARD_EXP2_FMA
#define JFA_SM100_FORWARD_EXP2_FMA 4
#endif
#ifndef JFA_SM100_FORWARD_RESCALE
#define JFA_SM100_FORWARD_RESCALE 8
#endif
#ifndef JFA_SM100_FORWARD_PEEL
#define JFA_SM100_FORWARD_PEEL 1
#endif
#ifndef JFA_SM100_FORWARD_SLICES
#define JFA_SM100_FORWARD_SLICES 2
#endif
#ifndef JFA_SM100_FORWARD_SPLIT_KEYS
#define JFA_SM100_FORWARD_SPLIT_KEYS 1
#endif
#ifndef JFA_SM100_FORWARD_STATIC
#define JFA_SM100_FORWARD_STATIC 50
#endif

struct ForwardSwitches {
  // Of 16 exponentials, those that a polynomial computes beside the special-function unit; even.
  static constexpr int kFmaExponentials = JFA_SM100_FORWARD_EXP2_FMA;
  // O is rescaled when a maximum has grown by this factor, as a power of two. 0: whenever a block is added.
  static constexpr int kRescale = JFA_SM100_FORWARD_RESCALE;
  // Blocks without a hidden key take code without a mask.
  static constexpr bool kPeel = JFA_SM100_FORWARD_PEEL;
  // Parts of a block of P that are handed over one by one.
  static constexpr int kSlices = JFA_SM100_FORWARD_SLICES;
  // Both groups work on tiles of few queries, each on every second block of keys.
  static constexpr bool kSplitKeys = JFA_SM100_FORWARD_SPLIT_KEYS;
  // Tiles that are dealt ahead, in percent. 0: all are handed out at run time; 100: none is.
  static constexpr int kStaticPercent = JFA_SM100_FORWARD_STATIC;
};

// T: element type. kDim: head dimension in shared memory, a multiple of 64. kMask: windows, causal, negative scale.
template <typename T_, int kDim_, bool kMask_, typename Switches = ForwardSwitches>
struct ForwardConfig : Switches {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kMask = kMask_;
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

  // Barriers by their place. "Full" is for the reader, "empty" for the writer.
  static constexpr int kSlotFull = 0, kSlotEmpty = kSlotFull + kSlots;
  static constexpr int kTileFull = kSlotEmpty + kSlots, kTileEmpty = kTileFull + kTiles;
  static constexpr int kTileLoaded = kTileEmpty + kTiles;  // the load warp has begun with a tile
  static constexpr int kQEmpty = kTileLoaded + kTiles;     // all scores of a tile are computed
  static constexpr int kQFull = kQEmpty + kTiles;
  static constexpr int kSFull = kQFull + kGroups, kOFull = kSFull + kGroups;
  static constexpr int kPFull = kOFull + kGroups;  // first slice: also that O may be written
  static constexpr int kMessageFull = kPFull + kGroups * Switches::kSlices;
  static constexpr int kMessageEmpty = kMessageFull + kGroups * kMessages;
  static constexpr int kStagingFull = kMessageEmpty + kGroups * kMessages, kStagingEmpty = kStagingFull + kGroups;
  static constexpr int kResponse = kStagingEmpty + kGroups;
  static constexpr int kBarriers = kResponse + 1;

  static constexpr int kOffsetResponse = (kOffsetBarriers + 8 * kBarriers + 15) / 16 * 16;  // of launch control
  static constexpr int kOffsetColumns = kOffsetResponse + 16;  // address of the Tensor Memory
  static constexpr int kSharedBytes = kOffsetColumns + 4;
  static_assert(kSharedBytes <= kLimit, "shared memory of a Blackwell CTA");
};

// Shared-memory addresses of a CTA.
template <typename C>
struct ForwardShared {
  uint32_t base;

  __device__ uint32_t q(int group) const { return base + group * C::kBytesQ; }
  __device__ uint32_t o(int group) const { return base + C::kOffsetO + group * C::kBytesQ; }
  __device__ uint32_t slot(int i) const { return base + C::kOffsetRing + i * C::kBytesSlot; }
  __device__ uint32_t message(int group, int i) const {
    return base + C::kOffsetMessages + (group * C::kMessages + i) * C::kRows * 4;
  }
  __device__ ForwardTile& tile(int i) const {
    return *static_cast<ForwardTile*>(__cvta_shared_to_generic(base + C::kOffsetTiles + i * 64));
  }
  __device__ uint32_t barrier(int place) const { return base + C::kOffsetBarriers + 8 * place; }
  __device__ uint32_t tile_full(int i) const { return barrier(C::kTileFull + i); }
  __device__ uint32_t tile_empty(int i) const { return barrier(C::kTileEmpty + i); }
  __device__ uint32_t response() const { return base + C::kOffsetResponse; }
  __device__ uint32_t columns() const { return base + C::kOffsetColumns; }
};

}  // namespace jfa::sm100
