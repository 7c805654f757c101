#pragma once

// What the reading warps of selected_walk.cuh have in common: which rows they own, products of
// those with tiles, and the way through the tiles.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/nsa/selected_walk.cuh"

namespace nsa::cuda {

#if NSA_WARPGROUPS

/// A lane's address in a tile of slabs moved to 16 rows from `row`, a multiple of 8, and 16 columns
/// from `piece`, which is even.
__device__ __forceinline__ std::uint32_t walk_moved(std::uint32_t address, int row, int piece) {
  return moved<64>(address, row, piece & 7) +
         static_cast<std::uint32_t>((piece >> 3) * kWalkKeys * 128);
}

/// sum [16, 8 kTiles] += a [16, kDim] times keys of a tile from `first` on. `tile` is the lane's
/// address by lane_offset_columns<64>().
template <int kDim, int kTiles>
__device__ __forceinline__ void multiply_keys(float (&sum)[kTiles][4],
                                              const std::uint32_t (&a)[kDim / 16][4],
                                              std::uint32_t tile, int first) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      std::uint32_t b[4];
      load_matrices(b, walk_moved(tile, first + j * 16, step * 2));
      multiply_add(sum[2 * j], a[step], b[0], b[1]);
      multiply_add(sum[2 * j + 1], a[step], b[2], b[3]);
    }
  }
}
/// sum [16, kDim] += a [16, 16] times 16 rows of a tile from `first` on. `tile` is the lane's
/// address by lane_offset_rows<64>().
template <int kDim>
__device__ __forceinline__ void multiply_rows(float (&sum)[kDim / 8][4],
                                              const std::uint32_t (&a)[4], std::uint32_t tile,
                                              int first) {
#pragma unroll
  for (int j = 0; j < kDim / 16; ++j) {
    std::uint32_t b[4];
    load_matrices_transposed(b, walk_moved(tile, first, j * 2));
    multiply_add(sum[2 * j], a, b[0], b[1]);
    multiply_add(sum[2 * j + 1], a, b[2], b[3]);
  }
}

/// One of the lanes, the same for the warp: known when all products of these sums are made. Until
/// then, loads of what they multiply may be on their way, which an arrival does not wait for: a
/// lane chosen so is what may tell that the tile is read.
template <int kDim>
__device__ __forceinline__ int lane_after(const float (&sum)[kDim / 8][4]) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j) bits |= __float_as_uint(sum[j][0]);
  return __any_sync(0xFFFFFFFFU, bits != 0) ? 0 : 1;
}

/// A tile as a warp sees it: its first token, and which of 32 queries selected it.
struct WalkTile {
  std::int32_t begin;
  std::uint32_t mask;
};

/// What a reading warp owns of an item, and where this lane's two rows (lane / 4 and eight on)
/// stand.
struct WalkRows {
  std::int32_t token[2];  ///< -1: past the last token
  std::uint32_t bit[2];   ///< in masks
  std::int64_t row[2];    ///< in arrays of one row per (token, head)

  __device__ WalkRows(const SelectedProblem<bf16>& p, const WalkItems& items, std::int32_t item,
                      int warp, int lane) {
    const std::int32_t width = 16 / items.warp_queries;  // rows of one query in the warp
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t at = lane / 4 + 8 * half;
      const std::int32_t query = items.query_of(warp) + at / width;
      const std::int32_t head = warp % items.parts * 16 + at % width;
      const std::int32_t t = items.first_query(item) + query;
      const bool real = t < p.tokens();
      token[half] = real ? t : -1;
      bit[half] = real ? 1U << (query % 32) : 0;
      row[half] = real ? p.row(t, items.kv_head(item), head) : 0;
    }
  }
  /// How many keys of a tile each row sees.
  __device__ void visible(const WalkTile& tile, std::int32_t (&keys)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keys[half] = (tile.mask & bit[half]) == 0 ? 0 : min(token[half] + 1 - tile.begin, kWalkKeys);
    }
  }
  /// The A operands of the warp's rows of x [rows, kDim]; zeros for padding.
  template <int kDim>
  __device__ void load(std::uint32_t (&a)[kDim / 16][4], const bf16* x, int lane) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* from =
          reinterpret_cast<const std::uint32_t*>(x + row[half] * kDim + lane % 4 * 2);
      const bool real = token[half] >= 0;
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        a[step][half] = real ? from[step * 8] : 0U;
        a[step][2 + half] = real ? from[step * 8 + 4] : 0U;
      }
    }
  }
};

/// By a reading warp: work.begin(rows) for every item, work.read(rows, tile, address of the keys,
/// those of the values stand kTileSize on) for every tile that one of its rows sees, ascending, and
/// work.finish(rows). read() gives the lane_after() its last products.
template <class S, class Work>
__device__ __forceinline__ void read_tiles(const SelectedProblem<bf16>& p, const WalkItems& items,
                                           WalkShared<S>& shared, std::uint32_t stages, int warp,
                                           int lane, Work& work) {
  const std::uint32_t warp_mask = items.mask_of(warp);
  const std::int32_t word = items.query_of(warp) / 32;
  std::int32_t first_step = 0;
  std::int32_t turn = 0;
  std::int32_t n = 0;
  for (;;) {
    shared.batches.wait_full(n);
    const std::int32_t item = shared.batch[n % kWalkBatches].item;
    if (item < 0) return;
    const WalkRows rows(p, items, item, warp, lane);
    work.begin(rows);
    for (bool last = false; !last; ++n) {
      shared.batches.wait_full(n);
      const WalkBatch<S>& batch = shared.batch[n % kWalkBatches];
      const std::uint32_t mask = lane < batch.count ? batch.mask[word][lane] : 0;
      std::uint32_t left = __ballot_sync(0xFFFFFFFFU, (mask & warp_mask) != 0);
      for (; left != 0; left &= left - 1, ++turn) {
        const int at = __ffs(static_cast<int>(left)) - 1;
        const WalkTile tile{batch.begin[at], batch.mask[word][at]};
        const std::int32_t step = first_step + at;
        barrier_wait(shared_address(&shared.turns[warp][turn % S::kStages]),
                     static_cast<std::uint32_t>(turn / S::kStages & 1));
        shared.tiles.wait_full(step);
        const int last_lane = work.read(
            rows, tile, stages + static_cast<std::uint32_t>(step % S::kStages * S::kStageBytes));
        if (lane == last_lane) shared.tiles.arrive_empty(step);
      }
      first_step += batch.count;
      last = batch.last;
      shared.batches.arrive_empty(n);
    }
    work.finish(rows);
  }
}

/// The whole of a kernel: what each warp of the block does. Work is made of the problem and the
/// lane; rows of `fetch` [tokens, kv_heads, group, kDim] are fetched to the L2 cache ahead.
template <class S, class Work, class... Rows>
__device__ __forceinline__ void walk_blocks(const CUtensorMap& keys, const CUtensorMap& values,
                                            const SelectedProblem<bf16>& p, const WalkItems& items,
                                            const Rows*... fetch) {
  extern __shared__ unsigned char memory[];
  __shared__ WalkShared<S> shared;
  const std::uint32_t stages = aligned_tiles(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  if (warp >= S::kWarps) {
    give_registers<S::kLoaderShare>();
    if (warp == S::kWarps) list_tiles(p, items, shared, lane, fetch...);
    if (warp == S::kWarps + 1) load_tiles(keys, values, items, shared, stages, lane);
  } else {
    take_registers<S::kReaderShare>();
    Work work(p, lane);
    read_tiles(p, items, shared, stages, warp, lane, work);
  }
}

#endif

/// Calls body.template operator()<S>() with the shape of a problem.
template <class Body>
void with_walk_shape(const SelectedProblem<bf16>& problem, Body&& body) {
  const auto with_lists = [&]<int kLists>() {
    if (problem.head_dim == 64) return body.template operator()<WalkShape<64, kLists>>();
    return body.template operator()<WalkShape<128, kLists>>();
  };
  if (problem.group == 1) return with_lists.template operator()<4>();
  if (problem.group == 2) return with_lists.template operator()<2>();
  return with_lists.template operator()<1>();
}

/// Queues a kernel made of walk_blocks().
template <class S, class Kernel>
void launch_walk(Kernel* kernel, const char* name, const SelectedProblem<bf16>& problem,
                 cudaStream_t stream) {
  static const int multiprocessors = multiprocessor_count();
  const WalkItems items(problem, S::kWarps);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
  kernel<<<static_cast<unsigned>(std::min(items.count, multiprocessors)), S::kThreads, S::kBytes,
           stream>>>(walk_map(problem.k, problem), walk_map(problem.v, problem), problem, items);
  check_launch(name);
}

}  // namespace nsa::cuda
