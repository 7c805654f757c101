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
/// Blocks of the union that are handed over at once, one a lane, and how often before they are
/// read.
constexpr int kWalkBatch = 32;
constexpr int kWalkBatches = 5;
/// No block begins here: the end of a list.
constexpr std::int32_t kWalkEnd = 0x7FFFFFFF;

/// The cut of a thread block by head dim, that of keys and of values, and by the lists that a lane
/// of the listing warp reads: an item is up to 32 kLaneLists queries.
template <int kHeadDim, int kLaneLists = 1>
struct WalkShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kLists = kLaneLists;
  static constexpr int kGroups = 2;  ///< warpgroups that read
  static constexpr int kWarps = 4 * kGroups;
  static constexpr int kThreads = (1 + kGroups) * kGroupThreads;
  static constexpr int kStages = kDim == 128 ? (kLists == 1 ? 7 : 6) : 13;
  static constexpr int kTileSize = kWalkKeys * kDim * 2;  ///< of keys, of values
  static constexpr int kStageBytes = 2 * kTileSize;
  static constexpr int kBytes = kStages * kStageBytes + kAlignSlack;
  // Registers per thread: of the warpgroup that lists and loads, of the others.
  static constexpr int kLoaderShare = 56;
  static constexpr int kReaderShare = 224;
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
  /// The first query of a warp, from the item's first on.
  __device__ std::int32_t query_of(int warp) const { return warp / parts * warp_queries; }
  /// The bits of a warp's queries in word query_of(warp) / 32 of masks.
  __device__ std::uint32_t mask_of(int warp) const {
    const auto bits = static_cast<std::uint32_t>((std::uint64_t{1} << warp_queries) - 1);
    return bits << (query_of(warp) % 32);
  }
};

/// Of x [tokens, kv_heads, head_dim]: a box is 64 columns of the keys of a tile.
inline CUtensorMap walk_map(const bf16* x, const SelectedProblem<bf16>& p) {
  return map_rows(x, p.tokens(), static_cast<std::int64_t>(p.kv_heads) * p.head_dim, kWalkKeys);
}

#if NSA_WARPGROUPS

/// Some of an item's union, ascending: where blocks begin, and bit by bit which queries of the item
/// selected them.
template <class S>
struct WalkBatch {
  std::int32_t item;  ///< -1: there are no more
  std::int32_t count;
  bool last;  ///< of the item
  std::int32_t begin[kWalkBatch];
  std::uint32_t mask[S::kLists][kWalkBatch];
};

template <class S>
struct WalkShared {
  Ring<S::kStages> tiles;
  Ring<kWalkBatches> batches;
  /// Of each warp: completes when the next tile that it reads has a stage. Only then does the
  /// parity of the stage's `full` tell that tile from those before, which the warp may not have
  /// looked at.
  std::uint64_t turns[S::kWarps][S::kStages];
  WalkBatch<S> batch[kWalkBatches];

  /// By one thread, before a barrier of the block.
  __device__ void init() {
    tiles.init(1, S::kWarps);
    batches.init(1, 32 * (S::kWarps + 1));
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

/// What a lane of the listing warp reads: the list of one query, and where it stands.
struct WalkList {
  const std::int32_t* slots;
  std::int32_t origin;  ///< first token of the query's document
  std::int32_t query;
  std::int32_t left;        ///< slots from `slots` on
  std::int32_t head, next;  ///< where its next two blocks begin

  WalkList() = default;
  __device__ WalkList(const SelectedProblem<bf16>& p, std::int32_t at, std::int32_t kv_head)
      : slots(p.blocks), origin(0), query(at), left(0) {
    if (at >= 0) {
      slots += p.pair(at, kv_head) * p.top_n;
      origin = p.documents.bounds[p.documents.of_token[at]];
      left = p.top_n;
    }
    head = read();
    next = read();
  }
  __device__ void advance() {
    head = next;
    next = read();
  }

 private:
  /// Blocks after the query are not seen.
  __device__ std::int32_t read() {
    if (left == 0) return kWalkEnd;
    --left;
    const std::int32_t block = *slots++;
    const std::int32_t begin = origin + block * kWalkKeys;
    return block < 0 || begin > query ? kWalkEnd : begin;
  }
};

/// By one warp: merges the ascending lists of the queries of every item of the thread block, some a
/// lane. Fetches what `fetch` points at of each query, [tokens, kv_heads, group, kDim], ahead.
template <class S, class... Rows>
__device__ __forceinline__ void list_tiles(const SelectedProblem<bf16>& p, const WalkItems& items,
                                           WalkShared<S>& shared, int lane, const Rows*... fetch) {
  std::int32_t n = 0;
  for (auto item = static_cast<std::int32_t>(blockIdx.x); item < items.count;
       item += static_cast<std::int32_t>(gridDim.x)) {
    const std::int32_t kv_head = items.kv_head(item);
    const auto list_of = [&](int i) {
      const std::int32_t at = lane + 32 * i;
      const std::int32_t query = items.first_query(item) + at;
      const bool mine = at < items.queries && query < p.tokens();
      if (mine) {
        const std::int64_t row = p.row(query, kv_head, 0);
        (prefetch_bulk(fetch + row * S::kDim, p.group * S::kDim * 2), ...);
      }
      return WalkList(p, mine ? query : -1, kv_head);
    };
    WalkList lists[S::kLists];
#pragma unroll
    for (int i = 0; i < S::kLists; ++i) lists[i] = list_of(i);
    const auto least_head = [&] {
      std::int32_t least = kWalkEnd;
#pragma unroll
      for (const WalkList& list : lists) least = min(least, list.head);
      return __reduce_min_sync(0xFFFFFFFFU, least);
    };
    bool last = false;
    for (; !last; ++n) {
      WalkBatch<S>& batch = shared.batch[n % kWalkBatches];
      shared.batches.wait_empty(n);
      std::int32_t count = 0;
      std::int32_t least = least_head();
      for (; least != kWalkEnd && count < kWalkBatch; ++count) {
        if (lane == 0) batch.begin[count] = least;
#pragma unroll
        for (int i = 0; i < S::kLists; ++i) {
          const bool selected = lists[i].head == least;
          const std::uint32_t mask = __ballot_sync(0xFFFFFFFFU, selected);
          if (selected) lists[i].advance();
          if (lane == 0) batch.mask[i][count] = mask;
        }
        least = least_head();
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
  const std::int32_t word = lane < S::kWarps ? items.query_of(lane) / 32 : 0;
  std::int32_t step = 0;
  std::int32_t turn = 0;  // of the warp with the lane's number
  for (std::int32_t n = 0;; ++n) {
    shared.batches.wait_full(n);
    const WalkBatch<S>& batch = shared.batch[n % kWalkBatches];
    if (batch.item < 0) return;
    const std::int32_t column = items.kv_head(batch.item) * S::kDim;
    for (std::int32_t at = 0; at < batch.count; ++at, ++step) {
      const bool reads = (batch.mask[word][at] & warp_mask) != 0;
      const int others = S::kWarps - __popc(__ballot_sync(0xFFFFFFFFU, reads));
      const int stage = step % S::kStages;
      shared.tiles.wait_empty(step);
      if (lane == 0) {
        const std::uint32_t full = shared_address(&shared.tiles.full[stage]);
        const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * S::kStageBytes);
        const std::int32_t begin = batch.begin[at];
        barrier_arrive_expecting(full, S::kStageBytes);
#pragma unroll
        for (int slab = 0; slab < S::kDim / 64; ++slab) {
          const std::uint32_t place = to + slab * kWalkKeys * 128;
          copy_box(place, keys, column + slab * 64, begin, full);
          copy_box(place + S::kTileSize, values, column + slab * 64, begin, full);
        }
        // In place of the warps that do not come.
        if (others > 0) barrier_arrive_times(shared_address(&shared.tiles.empty[stage]), others);
      }
      __syncwarp();
      if (reads) barrier_arrive(shared_address(&shared.turns[lane][turn++ % S::kStages]));
    }
    shared.batches.arrive_empty(n);
  }
}

#endif

}  // namespace nsa::cuda
