// Tile shapes, buffers and roles of the Hopper forward.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace jfa::sm90 {

// T: element type. kDim: head dimension in shared memory, a multiple of 64. kMask: windows, causal, negative scale.
// kWarpgroups: consumers, 64 rows each. With one, several CTAs share a multiprocessor.
// kPack: the rows of a tile are (query, head) for several query heads of a key head, heads innermost.
template <typename T_, int kDim_, bool kMask_, int kWarpgroups_ = 2, bool kPack_ = false>
struct ForwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kMask = kMask_;
  static constexpr bool kPack = kPack_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kCtas = kWarpgroups == 2 ? 1 : kDim == 64 ? 3 : 2;  // of a multiprocessor
  static constexpr int kBlockM = 64 * kWarpgroups;                         // rows of a tile
  static constexpr int kBlockN = kDim <= 128 && kCtas == 1 ? 128 : 64;     // keys of a block
  static constexpr int kTailN = 64;                                        // keys of a short last block
  static constexpr int kPanels = kDim / 64;  // columns of 64 elements, one swizzle atom wide
  static constexpr int kSlots = kCtas == 3 ? 7 : kCtas == 2 ? 5 : kDim == 64 ? 8 : 4;  // ring of K and V blocks
  static constexpr int kQBuffers = kDim <= 192 && kCtas == 1 ? 2 : 1;
  static constexpr bool kStoreByTma = kDim <= 128;  // O through shared memory, else from registers
  static constexpr int kTiles = kMask ? 4 : 8;      // ring of tile descriptions
  static constexpr int kLongTile = 512;             // keys of a tile that is long
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = kCtas == 3 ? 136 : kCtas == 2 ? 232 : 240;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Softmax relative to the maximum of earlier blocks. It keeps S until the end, for which the largest O leaves no
  // room.
  static constexpr bool kOptimistic = kDim <= 192;
  // The first reference of a row is 0, for which its scores need no look.
  static constexpr bool kZeroReference = kOptimistic && !kMask;
  // A thread's sum of P of a block above or, of a first block, below these asks for the exact maximum. Above, a value
  // of P might not fit its type; below, the values that count would be too near to the smallest of it.
  static constexpr float kLargestSum = std::is_same_v<T, __nv_bfloat16> ? 0x1p64f : 0x1p14f;
  static constexpr float kSmallestSum = std::is_same_v<T, __nv_bfloat16> ? 0x1p-32f : 0x1p-4f;
  static_assert(!kPack || (kStoreByTma && !kMask), "packed heads go through tensor maps, without masks");

  static constexpr int kPanelQ = kBlockM * 128;  // bytes of one panel of Q
  static constexpr int kPanelO = 16 * 128;       // of one warp
  static constexpr int kPanelKv = kBlockN * 128;
  static constexpr int kBytesQ = kPanels * kPanelQ;
  static constexpr int kBytesSlot = kPanels * kPanelKv;
  static constexpr int kOffsetO = kQBuffers * kBytesQ;
  static constexpr int kOffsetRing = kOffsetO + (kStoreByTma ? kBytesQ : 0);
  static constexpr int kOffsetTiles = kOffsetRing + kSlots * kBytesSlot;
  static constexpr int kOffsetBarriers = kOffsetTiles + kTiles * 64;
  static constexpr int kSlotFull = 0, kSlotEmpty = kSlotFull + kSlots, kTileFull = kSlotEmpty + kSlots;
  static constexpr int kTileEmpty = kTileFull + kTiles, kQFull = kTileEmpty + kTiles, kQEmpty = kQFull + kQBuffers;
  static constexpr int kBarriers = kQEmpty + kQBuffers;
  static __device__ constexpr int arrivals(int barrier) {
    if (barrier < kSlotEmpty || (barrier >= kTileFull && barrier < kTileEmpty)) return 1;
    if (barrier >= kQFull && barrier < kQEmpty) return 1;
    return (barrier >= kTileEmpty && barrier < kQFull ? 1 : 0) + 4 * kWarpgroups;
  }
  static constexpr int kSharedBytes = kOffsetBarriers + 8 * kBarriers;
  static_assert(kSharedBytes <= 228 * 1024 / kCtas - 1024, "shared memory of a Hopper CTA");
};

}  // namespace jfa::sm90
