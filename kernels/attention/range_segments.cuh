#pragma once

// How dk and dv are summed over many queries: key tiles, segments of the rows that see them, slots
// of partial sums and their merge. S, the cut of the work, names kKeys and kWarps (of 16 keys),
// kHead, kValue, kSlotFloats, and kDk and kDv: which of the two a launch makes.

#include <algorithm>

#include "kernels/attention/range_tiles.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {

/// The rows of queries that see a key tile are cut at multiples of `rows`, and each part is one
/// block's, what is left the last one's; slots [kv_heads, tiles, segments] take the sums. One
/// segment: all in one block, which writes dk and dv itself.
struct Segments {
  float* slots = nullptr;
  std::int32_t rows = 0;
  std::int32_t segments = 1;
  std::int32_t tiles = 0;               ///< of keys
  const std::int32_t* order = nullptr;  ///< [tiles]: which is worked on when; null: as they stand

  /// Of the block that is `index` in launch order.
  __device__ std::int32_t tile_of(std::int32_t index) const {
    const std::int32_t place = index / segments;
    return order == nullptr ? place : order[place];
  }
  template <class S>
  __device__ float* slot(std::int32_t kv_head, std::int32_t tile, std::int32_t segment) const {
    const std::int64_t index =
        (static_cast<std::int64_t>(kv_head) * tiles + tile) * segments + segment;
    return slots + index * S::kSlotFloats;
  }
};

/// Rows of queries, of one KV head.
struct RowRange {
  std::int32_t begin, end;
};

/// What keys [first, last] are seen by; one segment of it, perhaps empty.
template <class T>
__device__ __forceinline__ RowRange rows_of_keys(const RangeProblem<T>& p, std::int32_t first,
                                                 std::int32_t last) {
  return {p.rule.tokens_of(first).x * p.group, p.rule.tokens_of(last).y * p.group};
}
__device__ __forceinline__ RowRange segment_of(RowRange all, const Segments& split,
                                               std::int32_t segment) {
  if (split.segments == 1) return all;
  const std::int64_t begin =
      (static_cast<std::int64_t>(all.begin / split.rows) + segment) * split.rows;
  const std::int64_t end = segment + 1 == split.segments ? all.end : begin + split.rows;
  return {static_cast<std::int32_t>(min(max(begin, static_cast<std::int64_t>(all.begin)),
                                        static_cast<std::int64_t>(all.end))),
          static_cast<std::int32_t>(min(end, static_cast<std::int64_t>(all.end)))};
}

/// Statistics of a tile of query rows.
template <int kRows>
struct alignas(16) RowStats {
  float lse[kRows];
  float gate[kRows];
  float delta[kRows];
};

/// Queues the statistics of a row of a tile, which has `count`; zeros past them.
template <int kRows>
__device__ __forceinline__ void load_stats(RowStats<kRows>& to, const RangeProblem<bf16>& p,
                                           const RowMap& rows, int row, std::int32_t count) {
  const bool valid = row < count;
  const std::int64_t index = valid ? rows.index(row) : 0;
  copy_async_word(shared_address(to.lse + row), p.lse + index, valid);
  copy_async_word(shared_address(to.delta + row), p.deltas + index * p.stat_stride, valid);
  if (p.gates != nullptr) {
    copy_async_word(shared_address(to.gate + row), p.gates + index * p.stat_stride, valid);
  }
}
/// Before the first load_stats(): the gates of all stages, where none are given. A barrier follows.
template <int kRows, int kStages>
__device__ __forceinline__ void open_gates(RowStats<kRows> (&stats)[kStages],
                                           const RangeProblem<bf16>& p) {
  if (p.gates != nullptr || threadIdx.x >= kRows) return;
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) stats[stage].gate[threadIdx.x] = 1.0F;
}

/// A warp's sums to a slot.
template <int kDim>
__device__ __forceinline__ void store_slot(const float (&sum)[1][kDim / 8][4], float* to,
                                           int stride, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* row = to + (lane / 4 + half * 8) * stride;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      *reinterpret_cast<float2*>(row + j * 8 + lane % 4 * 2) =
          make_float2(sum[0][j][2 * half], sum[0][j][2 * half + 1]);
    }
  }
}

/// What a block works on.
struct KeyItem {
  std::int32_t tile, segment, kv_head;
};

/// The sums of the warp's 16 keys, from `first` of the tile: to dk and dv, or to the slot.
template <class S>
__device__ __forceinline__ void finish_keys(const RangeProblem<bf16>& p, const Segments& split,
                                            const float (&dk)[1][S::kDk ? S::kHead / 8 : 1][4],
                                            const float (&dv)[1][S::kDv ? S::kValue / 8 : 1][4],
                                            const KeyItem& item, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (split.segments > 1) {
    constexpr int kWidth = S::kHead + S::kValue;
    float* slot = split.slot<S>(item.kv_head, item.tile, item.segment) + first * kWidth;
    if constexpr (S::kDk) store_slot<S::kHead>(dk, slot, kWidth, lane);
    if constexpr (S::kDv) store_slot<S::kValue>(dv, slot + S::kHead, kWidth, lane);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t key = item.tile * S::kKeys + first + lane / 4 + half * 8;
    const bool valid = key < p.keys;
    const std::int64_t row = static_cast<std::int64_t>(key) * p.kv_heads + item.kv_head;
    if constexpr (S::kDk) {
      store_sums<S::kHead>(valid ? p.dk + row * p.head_dim : nullptr, p.head_dim, dk[0], half,
                           p.scale, lane);
    }
    if constexpr (S::kDv) {
      store_sums<S::kValue>(valid ? p.dv + row * p.v_dim : nullptr, p.v_dim, dv[0], half, 1.0F,
                            lane);
    }
  }
}

constexpr int kMergeThreads = 128;

/// One block: one key of one KV head. Adds its slots in the order of the segments, in fp32; writes
/// the rows of dk and dv.
template <class S>
__global__ void __launch_bounds__(kMergeThreads)
    merge_segments_kernel(const RangeProblem<bf16> p, const Segments split) {
  const auto key = static_cast<std::int32_t>(blockIdx.x);
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t tile = key / S::kKeys;
  const std::int32_t last_key = min((tile + 1) * S::kKeys, p.keys) - 1;
  const RowRange all = rows_of_keys(p, tile * S::kKeys, last_key);
  const std::int32_t used =
      min((all.end - 1) / split.rows - all.begin / split.rows + 1, split.segments);
  const std::int64_t row = static_cast<std::int64_t>(key) * p.kv_heads + kv_head;
  const float* first = split.slot<S>(kv_head, tile, 0) +
                       static_cast<std::int64_t>(key % S::kKeys) * (S::kHead + S::kValue);
  for (int column = static_cast<int>(threadIdx.x); column < S::kHead + S::kValue;
       column += kMergeThreads) {
    float sum = 0.0F;
    for (std::int32_t segment = 0; segment < used; ++segment) {
      sum += first[static_cast<std::int64_t>(segment) * S::kSlotFloats + column];
    }
    if (column < S::kHead) {
      if (column < p.head_dim) p.dk[row * p.head_dim + column] = from_float<bf16>(sum * p.scale);
    } else if (column - S::kHead < p.v_dim) {
      p.dv[row * p.v_dim + column - S::kHead] = from_float<bf16>(sum);
    }
  }
}

/// Segments of equal length, so many that the blocks of few key tiles still fill the GPU evenly;
/// none where there are tiles enough.
template <class S>
Segments cut_rows(const RangeProblem<bf16>& p, const RangeSplit& split) {
  const std::int64_t most_slots = std::int64_t{10} * split.multiprocessors * 128 / S::kKeys;
  Segments segments;
  segments.tiles = (p.keys + S::kKeys - 1) / S::kKeys;
  // What sees a tile is hardly longer than the longest document, but its ends may fall within
  // segments: one more than the parts of a document.
  const std::int64_t parts =
      most_slots / (static_cast<std::int64_t>(segments.tiles) * p.kv_heads) - 1;
  const std::int64_t longest = std::max<std::int64_t>(split.longest, 1) * p.group;
  const std::int64_t rows =
      std::max<std::int64_t>((longest + parts - 1) / std::max<std::int64_t>(parts, 1), 1024);
  if (p.rule.range == KeyRange::kWindow || parts < 2 || longest <= rows) return segments;
  segments.rows = static_cast<std::int32_t>(rows);
  segments.segments = static_cast<std::int32_t>((longest + rows - 1) / rows) + 1;
  return segments;
}

constexpr int kOrderThreads = 512;
constexpr int kOrderClasses = 64;  ///< of work

/// One block in all: the order of key tiles by classes of how many rows see them, most first. Which
/// of a class comes first is left to chance: no result depends on it.
template <class S>
__global__ void __launch_bounds__(kOrderThreads)
    order_tiles_kernel(const RangeProblem<bf16> p, std::int32_t tiles, std::int64_t longest,
                       std::int32_t* order) {
  __shared__ std::int32_t place[kOrderClasses];
  const auto class_of = [&](std::int32_t tile) {
    const std::int32_t first = tile * S::kKeys;
    const RowRange rows = rows_of_keys(p, first, min(first + S::kKeys, p.keys) - 1);
    const std::int64_t work = (rows.end - rows.begin) * std::int64_t{kOrderClasses - 1} / longest;
    return kOrderClasses - 1 - static_cast<int>(min(work, std::int64_t{kOrderClasses - 1}));
  };
  if (threadIdx.x < kOrderClasses) place[threadIdx.x] = 0;
  __syncthreads();
  for (auto tile = static_cast<std::int32_t>(threadIdx.x); tile < tiles; tile += kOrderThreads) {
    atomicAdd(&place[class_of(tile)], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int32_t before = 0;
    for (std::int32_t& count : place) {
      const std::int32_t own = count;
      count = before;
      before += own;
    }
  }
  __syncthreads();
  for (auto tile = static_cast<std::int32_t>(threadIdx.x); tile < tiles; tile += kOrderThreads) {
    order[atomicAdd(&place[class_of(tile)], 1)] = tile;
  }
}

/// Tiles of several documents are unequal in no order: blocks that begin long ones last would keep
/// the GPU waiting.
template <class S>
void order_tiles(Segments& segments, const RangeProblem<bf16>& p, const RangeSplit& split,
                 cudaStream_t stream) {
  if (p.rule.range == KeyRange::kWindow || split.longest >= p.tokens) return;
  auto* order = split.frame->take<std::int32_t>(segments.tiles);
  order_tiles_kernel<S><<<1, kOrderThreads, 0, stream>>>(
      p, segments.tiles, std::max<std::int64_t>(split.longest, 1) * p.group, order);
  check_launch("order_tiles_kernel");
  segments.order = order;
}

template <class S>
void merge_segments(const RangeProblem<bf16>& p, const Segments& split, cudaStream_t stream) {
  merge_segments_kernel<S><<<dim3(static_cast<unsigned>(p.keys), static_cast<unsigned>(p.kv_heads)),
                             kMergeThreads, 0, stream>>>(p, split);
  check_launch("merge_segments_kernel");
}

/// Takes the slots too, and queues the making of the order.
template <class S>
Segments take_segments(const RangeProblem<bf16>& p, const RangeSplit& split, cudaStream_t stream) {
  Segments segments = cut_rows<S>(p, split);
  order_tiles<S>(segments, p, split, stream);
  if (segments.segments > 1) {
    segments.slots = split.frame->take<float>(static_cast<std::int64_t>(p.kv_heads) *
                                              segments.tiles * segments.segments * S::kSlotFloats);
  }
  return segments;
}

}  // namespace nsa::cuda
