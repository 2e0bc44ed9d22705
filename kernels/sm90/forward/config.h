// Tile shapes, buffers and roles of the Hopper forward.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace jfa::sm90 {

// T: element type. kDim: head dimension in shared memory, a multiple of 64. kMask: windows, causal, negative scale.
template <typename T_, int kDim_, bool kMask_>
struct ForwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kMask = kMask_;
  static constexpr int kWarpgroups = 2;                   // consumers, 64 queries each
  static constexpr int kBlockM = 64 * kWarpgroups;        // queries of a tile
  static constexpr int kBlockN = kDim <= 128 ? 128 : 64;  // keys of a block
  static constexpr int kTailN = 64;                       // keys of a short last block
  static constexpr int kPanels = kDim / 64;               // columns of 64 elements, one swizzle atom wide
  static constexpr int kSlots = kDim == 64 ? 8 : 4;       // ring of K and V blocks
  static constexpr int kQBuffers = kDim <= 192 ? 2 : 1;
  static constexpr bool kStoreByTma = kDim <= 128;  // O through shared memory, else from registers
  static constexpr int kTiles = 8;                  // ring of tile descriptions
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Softmax relative to the maximum of earlier blocks. It keeps S until the end, for which the largest O leaves no
  // room.
  static constexpr bool kOptimistic = kDim <= 192;
  // A value of P above this asks for the exact maximum: 2^64, or 2^14 where the exponents end at 2^16.
  static constexpr uint32_t kLimit = std::is_same_v<T, __nv_bfloat16> ? 0x5F80u : 0x7400u;

  static constexpr int kPanelQ = kBlockM * 128;  // bytes of one panel of Q
  static constexpr int kPanelO = 64 * 128;       // of one warpgroup
  static constexpr int kPanelKv = kBlockN * 128;
  static constexpr int kBytesQ = kPanels * kPanelQ;
  static constexpr int kBytesSlot = kPanels * kPanelKv;
  static constexpr int kOffsetO = kQBuffers * kBytesQ;
  static constexpr int kOffsetRing = kOffsetO + (kStoreByTma ? kBytesQ : 0);
  static constexpr int kOffsetTiles = kOffsetRing + kSlots * kBytesSlot;
  static constexpr int kOffsetBarriers = kOffsetTiles + kTiles * 64;
  static constexpr int kBarriers = 2 * (kSlots + kTiles + kQBuffers);
  static constexpr int kSharedBytes = kOffsetBarriers + 8 * kBarriers;
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of a Hopper CTA");
};

}  // namespace jfa::sm90
