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
    ptx::mbarrier_wait(shared.tile_full(ring.index), ring.phase);
    return shared.tile(ring.index);
  }

  // Gives back the description, which the lanes of a warp have read; `arrives` in one of them.
  JFA_INLINE void release(bool arrives) {
    ptx::mbarrier_arrive_if(arrives, shared.tile_empty(ring.index));
    ring.advance();
  }
};

}  // namespace jfa
