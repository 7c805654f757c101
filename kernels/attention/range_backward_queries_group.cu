// Range attention, backward: dq, by warpgroups (sm_90a).

#include "kernels/attention/range_gradients.cuh"
#include "kernels/attention/range_group.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {

/// The cut of the work by padded head dims.
template <int kHeadDim, int kValueDim>
struct QueriesGroupShape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr int kRowTiles = 1;
  static constexpr int kKeys = 64;  ///< per tile
  static constexpr int kStages = 3;
  static constexpr int kQueryBytes = kTileBytes<kReaderRows, kHead>;
  static constexpr int kUpstreamBytes = kTileBytes<kReaderRows, kValue>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kStageBytes = kKeyBytes + kTileBytes<kKeys, kValue>;
  static constexpr int kBytes = kQueryBytes + kUpstreamBytes + kStages * kStageBytes + kAlignSlack;
};

namespace {

/// One block: kReaderRows rows (token, head of one group), 64 a warpgroup, against the keys that
/// any of them sees, a tile at a time, loaded by a third warpgroup. Reads q, k, v, dout, lse,
/// gates, deltas; writes dq, or adds to it. Products in bf16 with fp32 sums, the gradient of the
/// scores rounded to bf16. Limits as the forward's.
template <class S>
__global__ void __launch_bounds__(kGroupBlockThreads, 1)
    range_backward_queries_group_kernel(const RangeProblem<bf16> p) {
#if NSA_WARPGROUPS
  extern __shared__ unsigned char memory[];
  __shared__ RowTerms terms[kReaderRows];
  __shared__ Ring<S::kStages> ring;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const auto first_row = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x) * kReaderRows;
  const RowMap rows(p, first_row, kv_head);
  const std::int32_t count = min(kReaderRows, p.rows() - first_row);
  const TileKeys seen(p.rule, rows.token(0), rows.token(count - 1));
  const std::int32_t tiles = (seen.end - seen.begin + S::kKeys - 1) / S::kKeys;
  const std::uint32_t queries = aligned_tiles(memory);
  const std::uint32_t upstream = queries + S::kQueryBytes;
  const std::uint32_t stages = upstream + S::kUpstreamBytes;
  if (threadIdx.x == 0) ring.init(kGroupThreads, 4 * kReaders);
  __syncthreads();

  if (group == kReaders) {
    give_registers<kLoaderRegisters>();
    const std::int64_t first = static_cast<std::int64_t>(seen.begin) * p.kv_heads + kv_head;
    const std::int64_t k_stride = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
    const std::int64_t v_stride = static_cast<std::int64_t>(p.kv_heads) * p.v_dim;
    const bf16* k = p.k + first * p.head_dim;
    const bf16* v = p.v + first * p.v_dim;
    std::int32_t left = seen.end - seen.begin;
    for (std::int32_t tile = 0; tile < tiles; ++tile, left -= S::kKeys) {
      const std::uint32_t to =
          stages + static_cast<std::uint32_t>(tile % S::kStages) * S::kStageBytes;
      ring.wait_empty(tile);
      load_rows_apart<S::kKeys, S::kKeys, S::kHead>(to, k, k_stride, p.head_dim, thread, 0, left);
      load_rows_apart<S::kKeys, S::kKeys, S::kValue>(to + S::kKeyBytes, v, v_stride, p.v_dim,
                                                     thread, 0, left);
      ring.arrive_full(tile);
      k += S::kKeys * k_stride;
      v += S::kKeys * v_stride;
    }
    wait_copies<0>();
  } else {
    take_registers<kReaderRegisters>();
    const int lane = thread % 32;
    const int first_of_group = group * 64;
    const int first_of_warp = first_of_group + thread / 32 * 16;
    load_packed_rows<kReaderRows, 64, S::kHead>(queries, p.q, rows, p.head_dim, thread,
                                                first_of_group, count);
    load_packed_rows<kReaderRows, 64, S::kValue>(upstream, p.dout, rows, p.v_dim, thread,
                                                 first_of_group, count);
    commit_copies();
    if (thread < 64) {
      terms[first_of_group + thread] = RowTerms::of(p, rows, first_of_group + thread, count);
    }
    wait_copies<0>();
    order_shared_writes();
    group_barrier(group);

    const std::uint32_t at_q = queries + static_cast<std::uint32_t>(first_of_group * 128);
    const std::uint32_t at_dout = upstream + static_cast<std::uint32_t>(first_of_group * 128);
    const float scale = p.scale * kLog2E;
    float dq[1][S::kHead / 8][4] = {};
    std::uint32_t packed[S::kKeys / 16][4];
    const auto stage_of = [&](std::int32_t tile) {
      return stages + static_cast<std::uint32_t>(tile % S::kStages) * S::kStageBytes;
    };
    const auto weigh = [&](float(&score)[1][S::kKeys / 8][4], std::int32_t tile) {
      const std::int32_t from = seen.begin + tile * S::kKeys;
      row_probability<S>(score, terms + first_of_warp, scale, from, seen.cut(from, from + S::kKeys),
                         lane);
    };
    if (tiles > 0) {
      float score[1][S::kKeys / 8][4];
      float product[1][S::kKeys / 8][4];
      ring.wait_full(0);
      order_shared_writes();
      begin_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kHead>(score[0], at_q, stages);
      multiply_slabs<kReaderRows, S::kKeys, S::kValue>(product[0], at_dout, stages + S::kKeyBytes);
      commit_products();
      wait_products<0>();
      settle(score[0]);
      settle(product[0]);
      weigh(score, 0);
      row_gradient<S>(score, product, terms + first_of_warp, lane);
      pack_sums(packed, score[0]);
    }
    for (std::int32_t tile = 1; tile < tiles; ++tile) {
      // The products of this tile and dq of the one before without a pause between them; the
      // arithmetic on each goes on beside the next.
      float score[1][S::kKeys / 8][4];
      float product[1][S::kKeys / 8][4];
      const std::uint32_t at_k = stage_of(tile);
      ring.wait_full(tile);
      order_shared_writes();
      begin_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kHead>(score[0], at_q, at_k);
      commit_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kValue>(product[0], at_dout, at_k + S::kKeyBytes);
      commit_products();
      multiply_packed<S::kKeys>(dq[0], packed, stage_of(tile - 1));
      commit_products();
      wait_products<2>();
      settle(score[0]);
      weigh(score, tile);
      wait_products<1>();
      settle(product[0]);
      row_gradient<S>(score, product, terms + first_of_warp, lane);
      wait_products<0>();
      settle(dq[0]);
      if (lane == 0) ring.arrive_empty(tile - 1);
      pack_sums(packed, score[0]);
    }
    if (tiles > 0) {
      begin_products();
      multiply_packed<S::kKeys>(dq[0], packed, stage_of(tiles - 1));
      commit_products();
      wait_products<0>();
      settle(dq[0]);
    }
    store_dq<S>(p, dq, rows, first_of_warp, count, lane);
  }
#endif
}

}  // namespace

bool range_backward_queries_group(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  if (!fits_groups(problem.head_dim, problem.v_dim)) return false;
  bool done = false;
  with_group_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    using S = QueriesGroupShape<kHeadDim, kValueDim>;
    static const bool here = has_group_code(range_backward_queries_group_kernel<S>);
    done = here;
    if (!here) return;
    check(cudaFuncSetAttribute(range_backward_queries_group_kernel<S>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
    const auto blocks = static_cast<unsigned>((problem.rows() + kReaderRows - 1) / kReaderRows);
    range_backward_queries_group_kernel<S><<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)),
                                             kGroupBlockThreads, S::kBytes, stream>>>(problem);
    check_launch("range_backward_queries_group_kernel");
  });
  return done;
}

}  // namespace nsa::cuda
