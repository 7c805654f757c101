// Range attention, forward, on tensor cores.

#include "kernels/attention/range_softmax.cuh"
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
  static constexpr int kRowTiles = kHeadDim <= 192 ? 2 : 1;  ///< of 16 rows, per warp
  static constexpr int kKeys = kHeadDim <= 128 ? 64 : 32;    ///< per tile
  static constexpr int kRows = kWarps * 16 * kRowTiles;
  static constexpr int kQueryBytes = kTileBytes<kRows, kHead>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kStageBytes = kKeyBytes + kTileBytes<kKeys, kValue>;
  static constexpr int kBytes = kQueryBytes + 2 * kStageBytes;
  static constexpr int kBlocks = kHeadDim <= 64 ? 3 : 2;  ///< per multiprocessor
};

/// One block: kRows rows (token, head of one group), 16 kRowTiles of them a warp, against the keys
/// that any of them sees, a tile at a time. Reads q, k, v and the documents; writes out and lse.
/// Softmax over base 2 in fp32 with a running maximum, probabilities rounded to bf16 before they
/// meet v. Any group up to RowMap::kMostGroup, any head dims up to the padded ones. Later rows
/// first: those of long ranges.
template <class S>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    range_forward_kernel(const RangeProblem<bf16> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ int2 ranges[S::kRows];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const auto first_row = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x) * S::kRows;
  const RowMap rows(p, first_row, kv_head);
  const std::int32_t count = min(S::kRows, p.rows() - first_row);
  const TileKeys seen(p.rule, rows.token(0), rows.token(count - 1));
  const bool with_values = p.out != nullptr;

  const std::uint32_t queries = shared_address(memory);
  const std::uint32_t stages = queries + S::kQueryBytes;
  const auto load_keys = [&](std::int32_t tile) {
    const std::int32_t from = seen.begin + tile * S::kKeys;
    const std::uint32_t to = stages + tile % 2 * S::kStageBytes;
    const auto key_row = [&](int row) -> std::int64_t {
      return from + row < seen.end ? static_cast<std::int64_t>(from + row) * p.kv_heads + kv_head
                                   : -1;
    };
    load_tile<S::kKeys, S::kHead, kThreads>(to, p.k, p.head_dim, key_row);
    if (with_values) {
      load_tile<S::kKeys, S::kValue, kThreads>(to + S::kKeyBytes, p.v, p.v_dim, key_row);
    }
    commit_copies();
  };
  const std::int32_t tiles = (seen.end - seen.begin + S::kKeys - 1) / S::kKeys;
  load_tile<S::kRows, S::kHead, kThreads>(queries, p.q, p.head_dim, [&](int row) -> std::int64_t {
    return row < count ? rows.index(row) : -1;
  });
  load_keys(0);
  for (int row = static_cast<int>(threadIdx.x); row < S::kRows; row += kThreads) {
    ranges[row] = row < count ? p.rule.keys_of(rows.token(row)) : make_int2(0, 0);
  }

  const int first_of_warp = warp * 16 * S::kRowTiles;
  const std::uint32_t at_q =
      moved<S::kHead>(queries + lane_offset_rows<S::kHead>(lane), first_of_warp, 0);
  const float scale = p.scale * kLog2E;
  Softmax<S> softmax;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile is there, and the one before is read
    if (tile + 1 < tiles) load_keys(tile + 1);
    const std::uint32_t keys = stages + tile % 2 * S::kStageBytes;
    float score[S::kRowTiles][S::kKeys / 8][4] = {};
    multiply_rows<S::kRowTiles, S::kKeys, S::kHead>(score, at_q,
                                                    keys + lane_offset_columns<S::kHead>(lane));
    const std::int32_t from = seen.begin + tile * S::kKeys;
    if (seen.cut(from, from + S::kKeys)) hide_keys<S>(score, ranges + first_of_warp, from, lane);
    float shrink[S::kRowTiles][2];
    if (softmax.weigh(score, scale, shrink)) softmax.rescale(shrink);
    if (with_values) {
      multiply_kept<S::kRowTiles, S::kKeys, S::kValue>(
          softmax.out, score, keys + S::kKeyBytes + lane_offset_rows<S::kValue>(lane));
    }
  }
  wait_copies<0>();

  store_rows(p, softmax, rows, first_of_warp, count, lane);
}

}  // namespace

void range_forward_tensor(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  if (!problem.general && range_forward_group(problem, stream)) return;
  with_range_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    using S = Shape<kHeadDim, kValueDim>;
    const auto blocks = static_cast<unsigned>((problem.rows() + S::kRows - 1) / S::kRows);
    check(cudaFuncSetAttribute(range_forward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               S::kBytes));
    range_forward_kernel<S>
        <<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)), kThreads, S::kBytes, stream>>>(
            problem);
    check_launch("range_forward_kernel");
  });
}

}  // namespace nsa::cuda
