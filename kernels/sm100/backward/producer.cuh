// The warps of the Blackwell backward that feed the others: tiles, loads; of a pair, the relay of dS.
#pragma once

#include "attention/tile_ring.cuh"
#include "backward/tiles.cuh"
#include "ptx/clc.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tcgen05.cuh"
#include "sm100/backward/config.h"

namespace jfa::sm100 {

template <typename C>
using BackwardTiles = Tiles<C, BackwardShared<C>>;

// Steps of a pass over the queries of one head.
template <typename C>
JFA_INLINE int steps_of(const BackwardTile& t) {
  return (t.blocks + C::kBlocks - 1) / C::kBlocks;
}

// Arrives at a barrier of the CTA that issues the products.
template <typename C>
JFA_INLINE void arrive_at_leader(bool arrives, uint32_t barrier) {
  if constexpr (C::kPair) {
    ptx::mbarrier_arrive_cluster_if(arrives, ptx::map_shared(barrier, 0));
  } else {
    ptx::mbarrier_arrive_if(arrives, barrier);
  }
}

// This warp is done with Tensor Memory, or with shared memory that products read.
template <typename C>
JFA_INLINE void hand_over(BackwardShared<C> shared, int barrier) {
  ptx::tcgen05_fence_before();
  __syncwarp();
  arrive_at_leader<C>(threadIdx.x % 32 == 0, shared.barrier(barrier));
}

// Writes the tile of this CTA at the place where `walk` is; false at the end of the list. The CTAs of a pair visit the
// same queries, those that see either block. Where a pair has one block only, its second CTA loads the same and hides
// it: a load wholly beyond a sequence is none that hardware takes.
template <typename C>
__device__ bool write_tile(const BackwardParams& p, BackwardWalk& walk, uint32_t rank, BackwardTile& t) {
  const Entry* entry = walk.entry();
  if (!walk.next(C::kBlockN, t, C::kCtas * C::kBlockN)) return false;
  if constexpr (C::kPair) {
    const bool follows = entry[1].block == entry[0].block + 1 && t.keys > C::kBlockN;
    t.pair_rows[0] = t.kv_row;
    t.pair_rows[1] = t.kv_row + (follows ? C::kBlockN : 0);
    if (rank == 1) {
      t.key += C::kBlockN;
      t.keys = follows ? t.keys - C::kBlockN : -1;
      t.kv_row = t.pair_rows[1];
    }
  }
  return true;
}

// Lists the tiles of this CTA, then one without keys, and zeroes the gradients of keys that no query sees; one warp.
// Places in the list are dealt round robin, handed out by a counter or, if the launch has one cluster a place, taken
// over from clusters that have not started; how many of the launch this CTA has is told, too. With lanes, the walk goes
// its own way.
template <typename C>
__device__ void list_tiles(const BackwardParams& p, BackwardShared<C> shared) {
  const BackwardSchedule& s = p.schedule;
  const bool first_lane = threadIdx.x % 32 == 0;
  const uint32_t clusters = gridDim.x / C::kCtas;
  Ring<C::kTiles> ring;
  BackwardWalk walk(p);
  uint32_t phase = 0;
  auto take = [&] { return ptx::uniform(first_lane ? atomicAdd(p.places, 1) : 0); };
  uint32_t place = p.places != nullptr ? take() : blockIdx.x / C::kCtas, places = 0;
  while (true) {
    if (place < clusters) {
      fill_unseen<C>(p, place * C::kCtas + shared.rank, gridDim.x);
      if (first_lane) atomicAdd(&p.progress->begun, 1);
      ++places;
    }
    if (s.lanes == 0) walk.seek(place, C::kCtas);
    shared.wait(C::kTileEmpty + ring.index, ring.phase ^ 1);
    const bool more = ptx::uniform(first_lane ? write_tile<C>(p, walk, shared.rank, shared.tile(ring.index)) : false);
    if (more) {
      if (first_lane) shared.arrive(C::kTileFull + ring.index);
      ring.advance();
    }
    if (!s.launch_control) {
      if (!more) break;
      place = p.places != nullptr ? take() : place + clusters;
      continue;
    }
    shared.wait(C::kTileEmpty + ring.index, ring.phase ^ 1);
    if (first_lane) {
      const uint32_t full = shared.barrier(C::kLaunchFull);
      ptx::mbarrier_arrive_expect_tx(full, ptx::kClcResponseBytes);
      if (shared.rank == 0) {
        if (C::kPair) ptx::mbarrier_wait_cluster(shared.barrier(C::kLaunchEmpty), phase ^ 1);
        ptx::clc_try_cancel<C::kPair>(shared.response(), full);
      }
    }
    __syncwarp();
    shared.wait(C::kLaunchFull, phase);
    phase ^= 1;
    const uint32_t taken = ptx::clc_query(shared.response());
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (taken == ptx::kClcNone) break;
    if (C::kPair) arrive_at_leader<C>(first_lane && shared.rank == 1, shared.barrier(C::kLaunchEmpty));
    place = taken / C::kCtas;
  }
  if (first_lane) {
    *shared.places() = places;
    shared.tile(ring.index).keys = 0;
    shared.arrive(C::kTileFull + ring.index);
  }
}

// Loads of one CTA; of a pair, both tell the leader.
template <typename C>
struct Loader {
  const BackwardParams& p;
  const BackwardMaps& maps;
  const BackwardShared<C> shared;
  const int panels = (p.head_dim + 63) / 64;  // that are loaded; the others hold zeros
  Ring<C::kStages> stage;
  uint32_t steps = 0;

  __device__ void run() {
    BackwardTiles<C> tiles{shared};
    for (uint32_t phase = 1;; phase ^= 1) {
      const BackwardTile& t = tiles.wait();
      shared.wait(C::kKeysEmpty, phase);  // at the end, too: nobody leaves before
      if (t.keys == 0) break;
      load_keys(t);
#pragma unroll 1
      for (int step = 0, head = 0, block = 0; step < C::kPasses * p.group * steps_of<C>(t); ++step) {
        load_step(t, t.head * p.group + head, t.first_block + block, t.blocks - block, step == 0);
        if ((block += C::kBlocks) >= t.blocks) {
          block = 0;
          if (++head == p.group) head = 0;
        }
      }
      tiles.release();
    }
  }

  // Announces what each CTA loads, and names the barrier that it tells.
  __device__ uint32_t expect(int barrier, int bytes) const {
    const uint32_t address = shared.barrier(barrier);
    if (shared.rank == 0) ptx::mbarrier_arrive_expect_tx(address, C::kCtas * bytes);
    return C::kPair ? ptx::map_shared(address, 0) : address;
  }

  // 64 columns.
  __device__ void load_panel(uint32_t dst, const CUtensorMap& map, uint32_t barrier, int panel, int row, int head,
                             int end) const {
    const bool whole = p.head_dim % 64 == 0;
    ptx::tma_load<C::kCtas>(dst, map, barrier, whole ? 0 : panel * 64, row, whole ? panel : 0, head, end);
  }

  __device__ void load_block(uint32_t dst, int panel_bytes, const CUtensorMap& map, uint32_t barrier, int row, int head,
                             int end) const {
    if constexpr (C::kPair) {
      for (int panel = 0; panel < C::kPanels; ++panel) {
        load_panel(dst + panel * panel_bytes, map, barrier, panel, row, head, end);
      }
    } else {
      load_rows(dst, panel_bytes, map, barrier, p.panel_boxes, row, head, end);
    }
  }

  __device__ void load_keys(const BackwardTile& t) const {
    const uint32_t full = expect(C::kKFull, panels * C::kPanelKv + (C::kPair ? C::kBytesKv : 0));
    load_block(shared.k(), C::kPanelKv, maps.k, full, t.kv_row, t.head, t.kv_end);
    for (int i = 0; i < C::kCtas && C::kPair; ++i) {
      load_panel(shared.pair_k() + i * C::kPanelKv, maps.k, full, shared.rank, t.pair_rows[i], t.head, t.kv_end);
    }
  }

  // Queries from block `block` on, of which `blocks` are left.
  __device__ void load_step(const BackwardTile& t, int head, int block, int blocks, bool first) {
    const int row = t.q_row + block * kStatRows;
    // Blocks that do not exist are masked, whatever they hold.
    const int own = min(static_cast<int>(shared.rank), blocks - 1) * kStatRows;
    shared.wait(C::kQEmpty + stage.index, stage.phase ^ 1);
    uint32_t full = expect(C::kQFull + stage.index, panels * C::kPanelRowsQ);
    load_block(shared.q(stage.index), C::kPanelRowsQ, maps.q, full, row + own, head, t.q_end);
    const int64_t stats = static_cast<int64_t>(head) * p.stat_blocks + t.stat_block + block;
    const uint32_t buffer = steps & 1, stats_full = shared.barrier(C::kStatsFull + buffer);
    shared.wait(C::kStatsEmpty + buffer, steps >> 1 & 1 ^ 1);
    ptx::mbarrier_arrive_expect_tx(stats_full, C::kBytesStats);
    for (int i = 0; i < C::kBlocks; ++i) {
      ptx::bulk_load(shared.stats(buffer) + i * (2 * kStatRows * 4),
                     p.stats + (stats + min(i, blocks - 1)) * 2 * kStatRows, 2 * kStatRows * 4, stats_full);
    }
    if (first) {
      full = expect(C::kVFull, panels * C::kPanelKv);
      load_block(shared.v(), C::kPanelKv, maps.v, full, t.kv_row, t.head, t.kv_end);
    }
    shared.wait(C::kGradOEmpty, steps & 1 ^ 1);
    full = expect(C::kGradOFull, panels * C::kPanelRowsQ + (C::kPair ? C::kPanelQ : 0));
    load_block(shared.grad_o(), C::kPanelRowsQ, maps.grad_o, full, row + own, head, t.o_end);
    if constexpr (C::kPair) {
      const int second = min(1, blocks - 1) * kStatRows;
      load_columns(shared.grad_o_columns(), maps.grad_o, full, row, row + second, head, t.o_end);
      shared.wait(C::kQColumnsEmpty, steps & 1 ^ 1);
      load_columns(shared.q_columns(0), maps.q, expect(C::kQColumnsFull, C::kPanelQ), row, row + second, head, t.q_end);
    }
    stage.advance();
    ++steps;
  }

  // Two blocks of queries, this CTA's columns.
  __device__ void load_columns(uint32_t dst, const CUtensorMap& map, uint32_t full, int row, int second, int head,
                               int end) const {
    load_panel(dst, map, full, shared.rank, row, head, end);
    load_panel(dst + C::kPanelRowsQ, map, full, shared.rank, second, head, end);
  }
};

}  // namespace jfa::sm100
