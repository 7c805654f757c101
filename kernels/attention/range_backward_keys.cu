// Range attention, backward: dk and dv, on tensor cores.

#include <algorithm>

#include "kernels/attention/range_tiles.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

/// The cut of the work by padded head dims: what fits registers and 99 KB of shared memory. Where
/// the sums of dk and dv do not fit together, one launch makes each.
template <int kHeadDim, int kValueDim, bool kMakeKeys, bool kMakeValues>
struct Shape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr bool kDk = kMakeKeys;
  static constexpr bool kDv = kMakeValues;
  static constexpr int kWarps = kHeadDim <= 128 ? 8 : 4;  ///< of 16 keys
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = kHeadDim <= 64 || kWarps == 4 ? 2 : 1;  ///< per multiprocessor
  static constexpr int kKeys = kWarps * 16;
  static constexpr int kRows = 32;  ///< of queries, per tile
  static constexpr int kStages = kHeadDim <= 192 ? 2 : 1;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kValueBytes = kTileBytes<kKeys, kValue>;
  static constexpr int kQueryBytes = kTileBytes<kRows, kHead>;
  static constexpr int kStageBytes = kQueryBytes + kTileBytes<kRows, kValue>;
  static constexpr int kBytes = kKeyBytes + kValueBytes + kStages * kStageBytes;
  static constexpr int kSlotFloats = kKeys * (kHead + kValue);  ///< [keys, dk | dv]
};

/// The rows of queries that see a key tile are cut at multiples of `rows`, and each part is one
/// block's, what is left the last one's; slots [kv_heads, tiles, segments] take the sums. One
/// segment: all in one block, which writes dk and dv itself.
struct Segments {
  float* slots = nullptr;
  std::int32_t rows = 0;
  std::int32_t segments = 1;
  std::int32_t tiles = 0;  ///< of keys

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

/// score [keys, rows] becomes gate * probability, and product (v times dout) the gradient of the
/// scaled score. 0 where a row does not see a key, if `cut`. `seen` are the rows that see the
/// thread's two keys, counted from the tile's first.
template <class S>
__device__ __forceinline__ void key_gradients(float (&score)[1][S::kRows / 8][4],
                                              float (&product)[1][S::kRows / 8][4],
                                              const RowStats<S::kRows>& stats, float scale,
                                              const RowRange (&seen)[2], bool cut, int lane) {
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int row = j * 8 + lane % 4 * 2;
    const auto lse = *reinterpret_cast<const float2*>(stats.lse + row);
    const auto gate = *reinterpret_cast<const float2*>(stats.gate + row);
    const auto delta = *reinterpret_cast<const float2*>(stats.delta + row);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool odd = c % 2 == 1;
      float p = exp2_fast(fmaf(score[0][j][c], scale, -(odd ? lse.y : lse.x) * kLog2E));
      float ds = p * fmaf(odd ? gate.y : gate.x, product[0][j][c], -(odd ? delta.y : delta.x));
      p *= odd ? gate.y : gate.x;
      const int at = row + c % 2;
      if (cut && (at < seen[c / 2].begin || at >= seen[c / 2].end)) p = ds = 0.0F;
      score[0][j][c] = p;
      product[0][j][c] = ds;
    }
  }
}

/// A warp's sums to dk or dv, or to a slot.
template <int kDim>
__device__ __forceinline__ void store_sums(const float (&sum)[1][kDim / 8][4], float factor,
                                           bf16* to, std::int64_t stride, std::int32_t dim,
                                           const bool (&valid)[2], int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!valid[half]) continue;
    bf16* row = to + (lane / 4 + half * 8) * stride;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      store_pair(row, dim, j * 8 + lane % 4 * 2,
                 make_float2(sum[0][j][2 * half] * factor, sum[0][j][2 * half + 1] * factor));
    }
  }
}
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

/// One block: a tile of kKeys keys of one KV head, 16 a warp, against a segment of the rows (token,
/// head of the group) that see any of them. Transposed products, so that a warp keeps the sums of
/// its keys in registers: keys by rows, then times the rows. Reads q, k, v, dout, lse, gates,
/// deltas; writes dk and dv or a slot. Products in bf16 with fp32 sums, probabilities times gate
/// and the gradient of the scores rounded to bf16. Limits as the forward's. Early keys, which most
/// queries see, first.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    range_backward_keys_kernel(const RangeProblem<bf16> p, const Segments split) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ RowStats<S::kRows> stats[S::kStages];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const auto key_tile = static_cast<std::int32_t>(blockIdx.x) / split.segments;
  const auto segment = static_cast<std::int32_t>(blockIdx.x) % split.segments;
  const std::int32_t first_key = key_tile * S::kKeys;
  const std::int32_t last_key = min(first_key + S::kKeys, p.keys) - 1;
  const RowRange range = segment_of(rows_of_keys(p, first_key, last_key), split, segment);
  if (range.begin >= range.end) return;
  // Rows that every key of the tile is seen by.
  const std::int32_t all_begin = p.rule.tokens_of(last_key).x * p.group;
  const std::int32_t all_end = p.rule.tokens_of(first_key).y * p.group;

  const std::uint32_t keys = shared_address(memory);
  const std::uint32_t values = keys + S::kKeyBytes;
  const std::uint32_t stages = values + S::kValueBytes;
  const auto key_row = [&](int row) -> std::int64_t {
    return first_key + row <= last_key
               ? static_cast<std::int64_t>(first_key + row) * p.kv_heads + kv_head
               : -1;
  };
  const auto load_rows = [&](std::int32_t tile) {
    const std::int32_t from = range.begin + tile * S::kRows;
    const std::int32_t count = range.end - from;
    const RowMap rows(p, from, kv_head);
    const auto query_row = [&](int row) -> std::int64_t {
      return row < count ? rows.index(row) : -1;
    };
    const std::uint32_t to = stages + tile % S::kStages * S::kStageBytes;
    load_tile<S::kRows, S::kHead, S::kThreads>(to, p.q, p.head_dim, query_row);
    load_tile<S::kRows, S::kValue, S::kThreads>(to + S::kQueryBytes, p.dout, p.v_dim, query_row);
    if (const int row = static_cast<int>(threadIdx.x); row < S::kRows) {
      RowStats<S::kRows>& own = stats[tile % S::kStages];
      const bool valid = row < count;
      const std::int64_t index = valid ? rows.index(row) : 0;
      copy_async_word(shared_address(own.lse + row), p.lse + index, valid);
      copy_async_word(shared_address(own.delta + row), p.deltas + index * p.stat_stride, valid);
      if (p.gates != nullptr) {
        copy_async_word(shared_address(own.gate + row), p.gates + index * p.stat_stride, valid);
      } else {
        own.gate[row] = 1.0F;
      }
    }
    commit_copies();
  };
  load_tile<S::kKeys, S::kHead, S::kThreads>(keys, p.k, p.head_dim, key_row);
  if (S::kDk) load_tile<S::kKeys, S::kValue, S::kThreads>(values, p.v, p.v_dim, key_row);
  load_rows(0);

  const std::int32_t own_key = first_key + warp * 16;
  RowRange seen[2];
  bool valid[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t key = own_key + lane / 4 + half * 8;
    valid[half] = key <= last_key;
    seen[half] = rows_of_keys(p, min(key, last_key), min(key, last_key));
  }
  const std::uint32_t at_k = moved<S::kHead>(keys + lane_offset_rows<S::kHead>(lane), warp * 16, 0);
  const std::uint32_t at_v =
      moved<S::kValue>(values + lane_offset_rows<S::kValue>(lane), warp * 16, 0);
  const float scale = p.scale * kLog2E;
  float dk[1][S::kDk ? S::kHead / 8 : 1][4] = {};
  float dv[1][S::kDv ? S::kValue / 8 : 1][4] = {};
  const std::int32_t tiles = (range.end - range.begin + S::kRows - 1) / S::kRows;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile is there, and the one before is read
    if (S::kStages > 1 && tile + 1 < tiles) load_rows(tile + 1);
    const std::uint32_t queries = stages + tile % S::kStages * S::kStageBytes;
    const std::uint32_t upstream = queries + S::kQueryBytes;
    float score[1][S::kRows / 8][4] = {};
    float product[1][S::kRows / 8][4] = {};
    multiply_rows<1, S::kRows, S::kHead>(score, at_k,
                                         queries + lane_offset_columns<S::kHead>(lane));
    if constexpr (S::kDk) {
      multiply_rows<1, S::kRows, S::kValue>(product, at_v,
                                            upstream + lane_offset_columns<S::kValue>(lane));
    }
    const std::int32_t from = range.begin + tile * S::kRows;
    const RowRange local[2] = {{seen[0].begin - from, seen[0].end - from},
                               {seen[1].begin - from, seen[1].end - from}};
    key_gradients<S>(score, product, stats[tile % S::kStages], scale, local,
                     from < all_begin || from + S::kRows > all_end, lane);
    if constexpr (S::kDv) {
      multiply_kept<1, S::kRows, S::kValue>(dv, score,
                                            upstream + lane_offset_rows<S::kValue>(lane));
    }
    if constexpr (S::kDk) {
      multiply_kept<1, S::kRows, S::kHead>(dk, product, queries + lane_offset_rows<S::kHead>(lane));
    }
    if (S::kStages == 1 && tile + 1 < tiles) {
      __syncthreads();
      load_rows(tile + 1);
    }
  }
  wait_copies<0>();

  if (split.segments > 1) {
    constexpr int kWidth = S::kHead + S::kValue;
    float* slot = split.slot<S>(kv_head, key_tile, segment) + warp * 16 * kWidth;
    if constexpr (S::kDk) store_slot<S::kHead>(dk, slot, kWidth, lane);
    if constexpr (S::kDv) store_slot<S::kValue>(dv, slot + S::kHead, kWidth, lane);
    return;
  }
  const std::int64_t first = static_cast<std::int64_t>(own_key) * p.kv_heads + kv_head;
  if constexpr (S::kDk) {
    store_sums<S::kHead>(dk, p.scale, p.dk + first * p.head_dim,
                         static_cast<std::int64_t>(p.kv_heads) * p.head_dim, p.head_dim, valid,
                         lane);
  }
  if constexpr (S::kDv) {
    store_sums<S::kValue>(dv, 1.0F, p.dv + first * p.v_dim,
                          static_cast<std::int64_t>(p.kv_heads) * p.v_dim, p.v_dim, valid, lane);
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
  segments.segments = static_cast<std::int32_t>(parts) + 1;
  return segments;
}

template <class S>
void launch_keys(const RangeProblem<bf16>& problem, const Segments& segments, cudaStream_t stream) {
  check(cudaFuncSetAttribute(range_backward_keys_kernel<S>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
  const dim3 grid(static_cast<unsigned>(segments.tiles * segments.segments),
                  static_cast<unsigned>(problem.kv_heads));
  range_backward_keys_kernel<S><<<grid, S::kThreads, S::kBytes, stream>>>(problem, segments);
  check_launch("range_backward_keys_kernel");
}

}  // namespace

void range_backward_keys_tensor(const RangeProblem<bf16>& problem, const RangeSplit& split,
                                cudaStream_t stream) {
  with_range_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    constexpr bool kTogether = kHeadDim <= 192;
    using S = Shape<kHeadDim, kValueDim, true, kTogether>;
    Segments segments = cut_rows<S>(problem, split);
    if (segments.segments > 1) {
      segments.slots =
          split.frame->take<float>(static_cast<std::int64_t>(problem.kv_heads) * segments.tiles *
                                   segments.segments * S::kSlotFloats);
    }
    launch_keys<S>(problem, segments, stream);
    if constexpr (!kTogether) {
      launch_keys<Shape<kHeadDim, kValueDim, false, true>>(problem, segments, stream);
    }
    if (segments.segments == 1) return;
    merge_segments_kernel<S>
        <<<dim3(static_cast<unsigned>(problem.keys), static_cast<unsigned>(problem.kv_heads)),
           kMergeThreads, 0, stream>>>(problem, segments);
    check_launch("merge_segments_kernel");
  });
}

}  // namespace nsa::cuda
