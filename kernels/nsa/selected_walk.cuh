#pragma once

// Query-major work on selected blocks by warps that each do one thing (sm_90a): one lists the union
// of the blocks that a few adjacent queries of one KV head selected, one has them copied to a ring
// of stages, the others each own 16 rows (query, head) and read the tiles that one of their queries
// selected. No barrier is for all of them: a warp leaves a tile when it is done with it, and does
// not come to the others. The loading warps run ahead into the next queries.

#include "kernels/attention/range_group.cuh"
#include "kernels/common/bulk_copy.cuh"
#include "kernels/nsa/selected_problem.h"

namespace nsa::cuda {

/// Keys of a block, which is a tile.
constexpr int kWalkKeys = 64;
/// Blocks of the union that are handed over at once, and how many times.
constexpr int kWalkBatch = 128;
constexpr int kWalkBatches = 2;
/// Most queries of an item: a lane of the listing warp each, a bit of the masks.
constexpr int kWalkQueries = 32;
/// No block begins here: the end of a list.
constexpr std::int32_t kWalkEnd = 0x7FFFFFFF;

/// The cut of a thread block by head dim, that of keys and of values, and by warpgroups that read.
template <int kHeadDim, int kReadGroups>
struct WalkShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kGroups = kReadGroups;
  static constexpr int kWarps = 4 * kGroups;
  static constexpr int kThreads = (1 + kGroups) * kGroupThreads;
  static constexpr int kStages = 768 / kDim;
  static constexpr int kTileSize = kWalkKeys * kDim * 2;  ///< of keys, of values
  static constexpr int kStageBytes = 2 * kTileSize;
  static constexpr int kBytes = kStages * kStageBytes + kAlignSlack;
  // Registers per thread: of the warpgroup that lists and loads, of the others.
  static constexpr int kLoaderShare = kGroups == 2 ? 56 : 32;
  static constexpr int kReaderShare = kGroups == 2 ? 224 : 160;
};

/// How items, a few adjacent queries of one KV head each, come from a problem. Groups of 2^n heads.
struct WalkItems {
  std::int32_t tiles = 0;  ///< of the queries
  std::int32_t count = 0;  ///< KV head by KV head
  std::int32_t queries = 0;
  std::int32_t warp_queries = 0;  ///< of one warp
  std::int32_t parts = 0;         ///< warps that one query takes

  WalkItems(const SelectedProblem<bf16>& p, int warps)
      : warp_queries(p.group >= 16 ? 1 : 16 / p.group), parts(p.group >= 16 ? p.group / 16 : 1) {
    queries = warps / parts * warp_queries;
    tiles = (p.tokens() + queries - 1) / queries;
    count = tiles * p.kv_heads;
  }
  __host__ __device__ std::int32_t kv_head(std::int32_t item) const { return item / tiles; }
  __host__ __device__ std::int32_t first_query(std::int32_t item) const {
    return item % tiles * queries;
  }
  /// The bits of a warp's queries.
  __device__ std::uint32_t mask_of(int warp) const {
    const auto bits = static_cast<std::uint32_t>((std::uint64_t{1} << warp_queries) - 1);
    return bits << (warp / parts * warp_queries);
  }
};

/// Of x [tokens, kv_heads, head_dim]: a box is 64 columns of the keys of a tile.
inline CUtensorMap walk_map(const bf16* x, const SelectedProblem<bf16>& p) {
  return map_rows(x, p.tokens(), static_cast<std::int64_t>(p.kv_heads) * p.head_dim, kWalkKeys);
}

#if NSA_WARPGROUPS

/// A block of the union: its first token, and which queries of the item selected it.
struct WalkEntry {
  std::int32_t begin;
  std::uint32_t mask;
};

/// Some of an item's union, ascending.
struct WalkBatch {
  std::int32_t item;  ///< -1: there are no more
  std::int32_t count;
  bool last;  ///< of the item
  WalkEntry entries[kWalkBatch];
};

template <class S>
struct WalkShared {
  Ring<S::kStages> tiles;
  Ring<kWalkBatches> batches;
  /// Of each warp: completes when the next tile that it reads has a stage. Only then does the
  /// parity of the stage's `full` tell that tile from those before, which the warp may not have
  /// looked at.
  std::uint64_t turns[S::kWarps][S::kStages];
  WalkBatch batch[kWalkBatches];

  /// By one thread, before a barrier of the block.
  __device__ void init() {
    tiles.init(1, S::kWarps);
    batches.init(1, S::kWarps + 1);
    for (auto& warp : turns) {
      for (std::uint64_t& turn : warp) barrier_init(shared_address(&turn), 1);
    }
    order_shared_writes();
  }
};

__device__ __forceinline__ void barrier_arrive_times(std::uint32_t barrier, int times) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0], %1; }" ::"r"(barrier), "r"(times)
               : "memory");
}
/// Queues the fetch of `bytes`, a multiple of 16, to the L2 cache.
__device__ __forceinline__ void prefetch_bulk(const void* from, std::int32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// What a lane of the listing warp reads: the list of one query.
struct WalkList {
  const std::int32_t* slots;
  std::int32_t origin;  ///< first token of the query's document
  std::int32_t query, top_n;

  __device__ WalkList(const SelectedProblem<bf16>& p, std::int32_t at, std::int32_t kv_head)
      : slots(p.blocks), origin(0), query(at), top_n(0) {
    if (at < 0) return;
    slots += p.pair(at, kv_head) * p.top_n;
    origin = p.documents.bounds[p.documents.of_token[at]];
    top_n = p.top_n;
  }
  /// Where the block of a slot begins. Blocks after the query are not seen.
  __device__ std::int32_t read(std::int32_t slot) const {
    if (slot >= top_n) return kWalkEnd;
    const std::int32_t block = slots[slot];
    const std::int32_t begin = origin + block * kWalkKeys;
    return block < 0 || begin > query ? kWalkEnd : begin;
  }
};

/// By one warp: merges the ascending lists of the queries of every item of the thread block, one a
/// lane. Fetches what `fetch` points at of each query, [tokens, kv_heads, group, kDim], ahead.
template <class S, class... Rows>
__device__ __forceinline__ void list_tiles(const SelectedProblem<bf16>& p, const WalkItems& items,
                                           WalkShared<S>& shared, int lane, const Rows*... fetch) {
  std::int32_t n = 0;
  for (auto item = static_cast<std::int32_t>(blockIdx.x); item < items.count;
       item += static_cast<std::int32_t>(gridDim.x)) {
    const std::int32_t query = items.first_query(item) + lane;
    const std::int32_t kv_head = items.kv_head(item);
    const bool mine = lane < items.queries && query < p.tokens();
    const WalkList list(p, mine ? query : -1, kv_head);
    std::int32_t head = list.read(0);
    std::int32_t next = list.read(1);
    std::int32_t cursor = 2;
    if (mine) {
      const std::int64_t row = p.row(query, kv_head, 0);
      (prefetch_bulk(fetch + row * S::kDim, p.group * S::kDim * 2), ...);
    }
    bool last = false;
    for (; !last; ++n) {
      WalkBatch& batch = shared.batch[n % kWalkBatches];
      shared.batches.wait_empty(n);
      std::int32_t count = 0;
      std::int32_t least = __reduce_min_sync(0xFFFFFFFFU, head);
      while (least != kWalkEnd && count < kWalkBatch) {
        const std::uint32_t mask = __ballot_sync(0xFFFFFFFFU, head == least);
        if (head == least) {
          head = next;
          next = list.read(cursor++);
        }
        if (lane == 0) batch.entries[count] = {least, mask};
        ++count;
        least = __reduce_min_sync(0xFFFFFFFFU, head);
      }
      last = least == kWalkEnd;
      if (lane == 0) {
        batch.item = item;
        batch.count = count;
        batch.last = last;
        shared.batches.arrive_full_now(n);
      }
    }
  }
  shared.batches.wait_empty(n);
  if (lane == 0) {
    shared.batch[n % kWalkBatches].item = -1;
    shared.batches.arrive_full_now(n);
  }
}

/// By one warp: has the listed tiles copied, a stage after the other.
template <class S>
__device__ __forceinline__ void load_tiles(const CUtensorMap& keys, const CUtensorMap& values,
                                           const WalkItems& items, WalkShared<S>& shared,
                                           std::uint32_t stages, int lane) {
  const std::uint32_t warp_mask = lane < S::kWarps ? items.mask_of(lane) : 0;
  std::int32_t step = 0;
  std::int32_t turn = 0;  // of the warp with the lane's number
  for (std::int32_t n = 0;; ++n) {
    shared.batches.wait_full(n);
    const WalkBatch& batch = shared.batch[n % kWalkBatches];
    if (batch.item < 0) return;
    const std::int32_t column = items.kv_head(batch.item) * S::kDim;
    for (std::int32_t at = 0; at < batch.count; ++at, ++step) {
      const WalkEntry entry = batch.entries[at];
      const bool reads = (entry.mask & warp_mask) != 0;
      const int others = S::kWarps - __popc(__ballot_sync(0xFFFFFFFFU, reads));
      const int stage = step % S::kStages;
      shared.tiles.wait_empty(step);
      if (lane == 0) {
        const std::uint32_t full = shared_address(&shared.tiles.full[stage]);
        const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * S::kStageBytes);
        barrier_arrive_expecting(full, S::kStageBytes);
#pragma unroll
        for (int slab = 0; slab < S::kDim / 64; ++slab) {
          const std::uint32_t place = to + slab * kWalkKeys * 128;
          copy_box(place, keys, column + slab * 64, entry.begin, full);
          copy_box(place + S::kTileSize, values, column + slab * 64, entry.begin, full);
        }
        // In place of the warps that do not come.
        if (others > 0) barrier_arrive_times(shared_address(&shared.tiles.empty[stage]), others);
      }
      __syncwarp();
      if (reads) barrier_arrive(shared_address(&shared.turns[lane][turn++ % S::kStages]));
    }
    __syncwarp();
    if (lane == 0) shared.batches.arrive_empty(n);
  }
}

#endif

}  // namespace nsa::cuda
