// The place in a ring of buffers that mbarriers guard.
#pragma once

#include <cstdint>

namespace jfa {

// Index and phase of a ring buffer.
template <int kSize>
struct Ring {
  int index = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++index == kSize) {
      index = 0;
      phase ^= 1;
    }
  }
};

}  // namespace jfa
