// Range attention, backward: dq, on tensor cores.

#include "kernels/attention/range_gradients.cuh"
#include "kernels/attention/range_tiles.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;

/// The cut of the work by padded head dims: what fits registers and 99 KB of shared memory.
template <int kHeadDim, int kValueDim>
struct Shape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr int kRowTiles = kHeadDim <= 128 ? 2 : 1;  ///< of 16 rows, per warp
  static constexpr int kKeys = 32;                           ///< per tile
  static constexpr int kRows = kWarps * 16 * kRowTiles;
  static constexpr int kStages = kHeadDim <= 192 ? 2 : 1;
  static constexpr int kQueryBytes = kTileBytes<kRows, kHead>;
  static constexpr int kUpstreamBytes = kTileBytes<kRows, kValue>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kStageBytes = kKeyBytes + kTileBytes<kKeys, kValue>;
  static constexpr int kBytes = kQueryBytes + kUpstreamBytes + kStages * kStageBytes;
};

/// One block: kRows rows (token, head of one group), 16 kRowTiles of them a warp, against the keys
/// that any of them sees, a tile at a time. Reads q, k, v, dout, lse, gates, deltas; writes dq, or
/// adds to it. Products in bf16 with fp32 sums, the gradient of the scores rounded to bf16. Limits
/// as the forward's.
template <class S>
__global__ void __launch_bounds__(kThreads, 2)
    range_backward_queries_kernel(const RangeProblem<bf16> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ RowTerms terms[S::kRows];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const auto first_row = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x) * S::kRows;
  const RowMap rows(p, first_row, kv_head);
  const std::int32_t count = min(S::kRows, p.rows() - first_row);
  const TileKeys seen(p.rule, rows.token(0), rows.token(count - 1));

  const std::uint32_t queries = shared_address(memory);
  const std::uint32_t upstream = queries + S::kQueryBytes;
  const std::uint32_t stages = upstream + S::kUpstreamBytes;
  const auto load_keys = [&](std::int32_t tile) {
    const std::int32_t from = seen.begin + tile * S::kKeys;
    const std::uint32_t to = stages + tile % S::kStages * S::kStageBytes;
    const auto key_row = [&](int row) -> std::int64_t {
      return from + row < seen.end ? static_cast<std::int64_t>(from + row) * p.kv_heads + kv_head
                                   : -1;
    };
    load_tile<S::kKeys, S::kHead, kThreads>(to, p.k, p.head_dim, key_row);
    load_tile<S::kKeys, S::kValue, kThreads>(to + S::kKeyBytes, p.v, p.v_dim, key_row);
    commit_copies();
  };
  const std::int32_t tiles = (seen.end - seen.begin + S::kKeys - 1) / S::kKeys;
  const auto query_row = [&](int row) -> std::int64_t {
    return row < count ? rows.index(row) : -1;
  };
  load_tile<S::kRows, S::kHead, kThreads>(queries, p.q, p.head_dim, query_row);
  load_tile<S::kRows, S::kValue, kThreads>(upstream, p.dout, p.v_dim, query_row);
  load_keys(0);
  for (int row = static_cast<int>(threadIdx.x); row < S::kRows; row += kThreads) {
    terms[row] = RowTerms::of(p, rows, row, count);
  }

  const int first_of_warp = warp * 16 * S::kRowTiles;
  const std::uint32_t at_q =
      moved<S::kHead>(queries + lane_offset_rows<S::kHead>(lane), first_of_warp, 0);
  const std::uint32_t at_dout =
      moved<S::kValue>(upstream + lane_offset_rows<S::kValue>(lane), first_of_warp, 0);
  const float scale = p.scale * kLog2E;
  float dq[S::kRowTiles][S::kHead / 8][4] = {};
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile is there, and the one before is read
    if (S::kStages > 1 && tile + 1 < tiles) load_keys(tile + 1);
    const std::uint32_t keys = stages + tile % S::kStages * S::kStageBytes;
    float score[S::kRowTiles][S::kKeys / 8][4] = {};
    float product[S::kRowTiles][S::kKeys / 8][4] = {};
    multiply_rows<S::kRowTiles, S::kKeys, S::kHead>(score, at_q,
                                                    keys + lane_offset_columns<S::kHead>(lane));
    multiply_rows<S::kRowTiles, S::kKeys, S::kValue>(
        product, at_dout, keys + S::kKeyBytes + lane_offset_columns<S::kValue>(lane));
    const std::int32_t from = seen.begin + tile * S::kKeys;
    row_probability<S>(score, terms + first_of_warp, scale, from, seen.cut(from, from + S::kKeys),
                       lane);
    row_gradient<S>(score, product, terms + first_of_warp, lane);
    multiply_kept<S::kRowTiles, S::kKeys, S::kHead>(dq, score,
                                                    keys + lane_offset_rows<S::kHead>(lane));
    if (S::kStages == 1 && tile + 1 < tiles) {
      __syncthreads();
      load_keys(tile + 1);
    }
  }
  wait_copies<0>();

  store_dq<S>(p, dq, rows, first_of_warp, count, lane);
}

}  // namespace

void range_backward_queries_tensor(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  if (!problem.general && range_backward_queries_group(problem, stream)) return;
  with_range_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    using S = Shape<kHeadDim, kValueDim>;
    const auto blocks = static_cast<unsigned>((problem.rows() + S::kRows - 1) / S::kRows);
    check(cudaFuncSetAttribute(range_backward_queries_kernel<S>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
    range_backward_queries_kernel<S>
        <<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)), kThreads, S::kBytes, stream>>>(
            problem);
    check_launch("range_backward_queries_kernel");
  });
}

}  // namespace nsa::cuda
