// The tiles of a CTA, as one role sees them: a ring of descriptions that another role fills.
#pragma once

#include "attention/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warp.cuh"

namespace jfa {

template <typename C, typename Shared>
struct Tiles {
  const Shared shared;
  Ring<C::kTiles> ring;

  JFA_INLINE auto& wait() const {
    shared.wait(C::kTileFull + ring.index, ring.phase);
    return shared.tile(ring.index);
  }

  // Gives back the description; by one thread, or by a warp.
  JFA_INLINE void release(bool arrives = true) {
    shared.arrive_if(arrives, C::kTileEmpty + ring.index);
    ring.advance();
  }
  JFA_INLINE void release_by_warp() {
    __syncwarp();
    release(threadIdx.x % 32 == 0);
  }
};

}  // namespace jfa
