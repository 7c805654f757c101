// Range attention, backward: dk and dv, by warpgroups (sm_90a).

#include "kernels/attention/range_group.cuh"
#include "kernels/attention/range_segments.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {

/// The cut of the work by padded head dims.
template <int kHeadDim, int kValueDim>
struct KeysGroupShape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr bool kDk = true;
  static constexpr bool kDv = true;
  static constexpr int kKeys = kReaderRows;
  static constexpr int kRows = 64;  ///< of queries, per tile
  static constexpr int kStages = 3;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kValueBytes = kTileBytes<kKeys, kValue>;
  static constexpr int kQueryBytes = kTileBytes<kRows, kHead>;
  static constexpr int kStageBytes = kQueryBytes + kTileBytes<kRows, kValue>;
  static constexpr int kBytes = kKeyBytes + kValueBytes + kStages * kStageBytes + kAlignSlack;
  static constexpr int kSlotFloats = kKeys * (kHead + kValue);
};

namespace {

/// score [keys, rows] becomes the probability; 0 where a row does not see a key, if `cut`. `seen`
/// are the rows that see the thread's two keys, counted from the tile's first.
template <class S>
__device__ __forceinline__ void to_probability(float (&score)[S::kRows / 8][4],
                                               const RowStats<S::kRows>& stats, float scale,
                                               const RowRange (&seen)[2], bool cut, int lane) {
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int row = j * 8 + lane % 4 * 2;
    const auto lse = *reinterpret_cast<const float2*>(stats.lse + row);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float& at = score[j][c];
      at = exp2_fast(fmaf(at, scale, (c % 2 == 1 ? lse.y : lse.x) * -kLog2E));
      const int column = row + c % 2;
      if (cut && (column < seen[c / 2].begin || column >= seen[c / 2].end)) at = 0.0F;
    }
  }
}

/// `packed` becomes the probability times the row's gate.
template <class S>
__device__ __forceinline__ void pack_gated(std::uint32_t (&packed)[S::kRows / 16][4],
                                           const float (&probability)[S::kRows / 8][4],
                                           const RowStats<S::kRows>& stats, int lane) {
#pragma unroll
  for (int step = 0; step < S::kRows / 16; ++step) {
    float gated[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = step * 2 + i;
      const auto gate = *reinterpret_cast<const float2*>(stats.gate + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int c = 0; c < 4; ++c) gated[i][c] = probability[j][c] * (c % 2 == 1 ? gate.y : gate.x);
    }
    pack_a(packed[step], gated[0], gated[1]);
  }
}

/// product (v times dout) becomes the gradient of the scaled score. Where the probability is 0 it
/// is 0, so nothing is hidden here: gates and deltas are finite.
template <class S>
__device__ __forceinline__ void to_gradient(float (&product)[S::kRows / 8][4],
                                            const float (&probability)[S::kRows / 8][4],
                                            const RowStats<S::kRows>& stats, int lane) {
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int row = j * 8 + lane % 4 * 2;
    const auto gate = *reinterpret_cast<const float2*>(stats.gate + row);
    const auto delta = *reinterpret_cast<const float2*>(stats.delta + row);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float& at = product[j][c];
      at = probability[j][c] *
           fmaf(c % 2 == 1 ? gate.y : gate.x, at, -(c % 2 == 1 ? delta.y : delta.x));
    }
  }
}

/// One block: a tile of kKeys keys of one KV head, 64 a warpgroup, against a segment of the rows
/// (token, head of the group) that see any of them, a tile at a time, loaded by a third warpgroup.
/// Transposed products, so that a warpgroup keeps the sums of its keys in registers. Reads q, k, v,
/// dout, lse, gates, deltas; writes dk and dv or a slot. Products in bf16 with fp32 sums,
/// probabilities times gate and the gradient of the scores rounded to bf16. Limits as the
/// forward's. Keys that most queries see first.
template <class S>
__global__ void __launch_bounds__(kGroupBlockThreads, 1)
    range_backward_keys_group_kernel(const RangeProblem<bf16> p, const Segments split) {
#if NSA_WARPGROUPS
  extern __shared__ unsigned char memory[];
  __shared__ RowStats<S::kRows> stats[S::kStages];
  __shared__ Ring<S::kStages> ring;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t key_tile = split.tile_of(static_cast<std::int32_t>(blockIdx.x));
  const auto segment = static_cast<std::int32_t>(blockIdx.x) % split.segments;
  const std::int32_t first_key = key_tile * S::kKeys;
  const std::int32_t last_key = min(first_key + S::kKeys, p.keys) - 1;
  const RowRange range = segment_of(rows_of_keys(p, first_key, last_key), split, segment);
  if (range.begin >= range.end) return;
  const std::int32_t tiles = (range.end - range.begin + S::kRows - 1) / S::kRows;
  const std::uint32_t keys = aligned_tiles(memory);
  const std::uint32_t values = keys + S::kKeyBytes;
  const std::uint32_t stages = values + S::kValueBytes;
  if (threadIdx.x == 0) ring.init(kGroupThreads, 4 * kReaders);
  open_gates(stats, p);
  __syncthreads();

  if (group == kReaders) {
    give_registers<kLoaderRegisters>();
    RowMap rows(p, range.begin, kv_head);
    std::int32_t count = range.end - range.begin;
    for (std::int32_t tile = 0; tile < tiles; ++tile, count -= S::kRows) {
      const std::uint32_t to =
          stages + static_cast<std::uint32_t>(tile % S::kStages) * S::kStageBytes;
      ring.wait_empty(tile);
      load_packed_rows<S::kRows, S::kRows, S::kHead>(to, p.q, rows, p.head_dim, thread, 0, count);
      load_packed_rows<S::kRows, S::kRows, S::kValue>(to + S::kQueryBytes, p.dout, rows, p.v_dim,
                                                      thread, 0, count);
      if (thread < S::kRows) load_stats(stats[tile % S::kStages], p, rows, thread, count);
      ring.arrive_full(tile);
      rows.advance(S::kRows);
    }
    wait_copies<0>();
  } else {
    take_registers<kReaderRegisters>();
    const int lane = thread % 32;
    const int first_of_group = group * 64;
    const int first_of_warp = first_of_group + thread / 32 * 16;
    const std::int64_t first =
        static_cast<std::int64_t>(first_key + first_of_group) * p.kv_heads + kv_head;
    load_rows_apart<S::kKeys, 64, S::kHead>(
        keys, p.k + first * p.head_dim, static_cast<std::int64_t>(p.kv_heads) * p.head_dim,
        p.head_dim, thread, first_of_group, last_key + 1 - first_key);
    load_rows_apart<S::kKeys, 64, S::kValue>(
        values, p.v + first * p.v_dim, static_cast<std::int64_t>(p.kv_heads) * p.v_dim, p.v_dim,
        thread, first_of_group, last_key + 1 - first_key);
    commit_copies();
    RowRange seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t key = min(first_key + first_of_warp + lane / 4 + half * 8, last_key);
      seen[half] = rows_of_keys(p, key, key);
    }
    // Rows that see every key of the tile.
    const std::int32_t all_begin = p.rule.tokens_of(last_key).x * p.group;
    const std::int32_t all_end = p.rule.tokens_of(first_key).y * p.group;
    wait_copies<0>();
    order_shared_writes();
    group_barrier(group);

    const std::uint32_t at_k = keys + static_cast<std::uint32_t>(first_of_group * 128);
    const std::uint32_t at_v = values + static_cast<std::uint32_t>(first_of_group * 128);
    const float scale = p.scale * kLog2E;
    float dk[1][S::kHead / 8][4] = {};
    float dv[1][S::kValue / 8][4] = {};
    const auto stage_of = [&](std::int32_t tile) {
      return stages + static_cast<std::uint32_t>(tile % S::kStages) * S::kStageBytes;
    };
    const auto begin_scores = [&](float(&score)[S::kRows / 8][4], std::int32_t tile) {
      ring.wait_full(tile);
      order_shared_writes();
      begin_products();
      multiply_slabs<S::kKeys, S::kRows, S::kHead>(score, at_k, stage_of(tile));
      commit_products();
    };
    // All but dk of a tile whose scores are there; leaves the products of dv running.
    const auto take_tile = [&](float(&score)[S::kRows / 8][4],
                               std::uint32_t(&gradient)[S::kRows / 16][4], std::int32_t tile) {
      float product[S::kRows / 8][4];
      std::uint32_t packed[S::kRows / 16][4];
      const std::uint32_t at_dout = stage_of(tile) + S::kQueryBytes;
      const RowStats<S::kRows>& own = stats[tile % S::kStages];
      begin_products();
      multiply_slabs<S::kKeys, S::kRows, S::kValue>(product, at_v, at_dout);
      commit_products();
      const std::int32_t from = range.begin + tile * S::kRows;
      const RowRange local[2] = {{seen[0].begin - from, seen[0].end - from},
                                 {seen[1].begin - from, seen[1].end - from}};
      to_probability<S>(score, own, scale, local, from < all_begin || from + S::kRows > all_end,
                        lane);
      pack_gated<S>(packed, score, own, lane);
      begin_products();
      multiply_packed<S::kRows>(dv[0], packed, at_dout);
      commit_products();
      wait_products<1>();
      settle(product);
      to_gradient<S>(product, score, own, lane);
      pack_sums(gradient, product);
    };
    float score[S::kRows / 8][4];
    std::uint32_t gradient[S::kRows / 16][4];
    begin_scores(score, 0);
    wait_products<0>();
    settle(score);
    for (std::int32_t tile = 0; tile + 1 < tiles; ++tile) {
      take_tile(score, gradient, tile);
      begin_products();
      multiply_packed<S::kRows>(dk[0], gradient, stage_of(tile));
      commit_products();
      begin_scores(score, tile + 1);
      wait_products<0>();
      settle(score);
      settle(dk[0]);
      settle(dv[0]);
      __syncwarp();  // all lanes have read the statistics
      if (lane == 0) ring.arrive_empty(tile);
    }
    take_tile(score, gradient, tiles - 1);
    begin_products();
    multiply_packed<S::kRows>(dk[0], gradient, stage_of(tiles - 1));
    commit_products();
    wait_products<0>();
    settle(dk[0]);
    settle(dv[0]);
    finish_keys<S>(p, split, dk, dv, {key_tile, segment, kv_head}, first_of_warp);
  }
#endif
}

}  // namespace

bool range_backward_keys_group(const RangeProblem<bf16>& problem, const RangeSplit& split,
                               cudaStream_t stream) {
  if (!fits_groups(problem.head_dim, problem.v_dim)) return false;
  bool done = false;
  with_group_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    using S = KeysGroupShape<kHeadDim, kValueDim>;
    static const bool here = has_group_code(range_backward_keys_group_kernel<S>);
    done = here;
    if (!here) return;
    const Segments segments = take_segments<S>(problem, split, stream);
    check(cudaFuncSetAttribute(range_backward_keys_group_kernel<S>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
    const dim3 grid(static_cast<unsigned>(segments.tiles * segments.segments),
                    static_cast<unsigned>(problem.kv_heads));
    range_backward_keys_group_kernel<S>
        <<<grid, kGroupBlockThreads, S::kBytes, stream>>>(problem, segments);
    check_launch("range_backward_keys_group_kernel");
    if (segments.segments > 1) merge_segments<S>(problem, segments, stream);
  });
  return done;
}

}  // namespace nsa::cuda
