// Range attention, backward: dk and dv, on tensor cores.

#include "kernels/attention/range_segments.cuh"
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

/// One block: a tile of kKeys keys of one KV head, 16 a warp, against a segment of the rows (token,
/// head of the group) that see any of them. Transposed products, so that a warp keeps the sums of
/// its keys in registers: keys by rows, then times the rows. Reads q, k, v, dout, lse, gates,
/// deltas; writes dk and dv or a slot. Products in bf16 with fp32 sums, probabilities times gate
/// and the gradient of the scores rounded to bf16. Limits as the forward's. Keys that most queries
/// see first.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    range_backward_keys_kernel(const RangeProblem<bf16> p, const Segments split) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ RowStats<S::kRows> stats[S::kStages];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t key_tile = split.tile_of(static_cast<std::int32_t>(blockIdx.x));
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
      load_stats(stats[tile % S::kStages], p, rows, row, count);
    }
    commit_copies();
  };
  load_tile<S::kKeys, S::kHead, S::kThreads>(keys, p.k, p.head_dim, key_row);
  if (S::kDk) load_tile<S::kKeys, S::kValue, S::kThreads>(values, p.v, p.v_dim, key_row);
  open_gates(stats, p);
  load_rows(0);

  const std::int32_t own_key = first_key + warp * 16;
  RowRange seen[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t key = own_key + lane / 4 + half * 8;
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

  finish_keys<S>(p, split, dk, dv, {key_tile, segment, kv_head}, warp * 16);
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
  if (!problem.general && range_backward_keys_group(problem, split, stream)) return;
  with_range_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    constexpr bool kTogether = kHeadDim <= 192;
    using S = Shape<kHeadDim, kValueDim, true, kTogether>;
    const Segments segments = take_segments<S>(problem, split, stream);
    launch_keys<S>(problem, segments, stream);
    if constexpr (!kTogether) {
      launch_keys<Shape<kHeadDim, kValueDim, false, true>>(problem, segments, stream);
    }
    if (segments.segments == 1) return;
    merge_segments<S>(problem, segments, stream);
  });
}

}  // namespace nsa::cuda
