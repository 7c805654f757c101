// Range attention, forward, by warpgroups (sm_90a).

#include "kernels/attention/range_group.cuh"
#include "kernels/attention/range_softmax.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

/// The cut of the work by padded head dims and the length of a key tile: longer ones where ranges
/// are long.
template <int kHeadDim, int kValueDim, int kTileKeys_>
struct Shape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr int kRowTiles = 1;
  static constexpr int kKeys = kTileKeys_;
  static constexpr int kStages = kKeys == 64 ? 3 : 2;
  static constexpr int kQueryBytes = kTileBytes<kReaderRows, kHead>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kValueBytes = kTileBytes<kKeys, kValue>;
  static constexpr int kBytes = kQueryBytes + kStages * (kKeyBytes + kValueBytes) + kAlignSlack;
};

/// One block: kReaderRows rows (token, head of one group), 64 a warpgroup, against the keys that
/// any of them sees, a tile at a time, loaded by a third warpgroup. Reads q, k, v and the
/// documents; writes out and lse. Softmax over base 2 in fp32 with a running maximum, probabilities
/// rounded to bf16 before they meet v. Any group up to RowMap::kMostGroup, head dims in multiples
/// of 8 up to the padded ones. Later rows first: those of long ranges.
template <class S>
__global__ void __launch_bounds__(kGroupBlockThreads, 1)
    range_forward_group_kernel(const RangeProblem<bf16> p) {
#if NSA_WARPGROUPS
  extern __shared__ unsigned char memory[];
  __shared__ int2 ranges[kReaderRows];
  __shared__ Ring<S::kStages> key_ring;
  __shared__ Ring<S::kStages> value_ring;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const auto first_row = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x) * kReaderRows;
  const RowMap rows(p, first_row, kv_head);
  const std::int32_t count = min(kReaderRows, p.rows() - first_row);
  const TileKeys seen(p.rule, rows.token(0), rows.token(count - 1));
  const std::int32_t tiles = (seen.end - seen.begin + S::kKeys - 1) / S::kKeys;
  const std::uint32_t queries = aligned_tiles(memory);
  const std::uint32_t keys = queries + S::kQueryBytes;
  const std::uint32_t values = keys + S::kStages * S::kKeyBytes;
  if (threadIdx.x == 0) {
    key_ring.init(kGroupThreads, 4 * kReaders);
    value_ring.init(kGroupThreads, 4 * kReaders);
  }
  __syncthreads();

  if (group == kReaders) {
    give_registers<kLoaderRegisters>();
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      const std::int32_t from = seen.begin + tile * S::kKeys;
      const auto key_row = [&](int row) -> std::int64_t {
        return from + row < seen.end ? static_cast<std::int64_t>(from + row) * p.kv_heads + kv_head
                                     : -1;
      };
      const auto stage = static_cast<std::uint32_t>(tile % S::kStages);
      key_ring.wait_empty(tile);
      load_slabs<S::kKeys, S::kHead>(keys + stage * S::kKeyBytes, p.k, p.head_dim, thread, 0,
                                     S::kKeys, key_row);
      key_ring.arrive_full(tile);
      value_ring.wait_empty(tile);
      load_slabs<S::kKeys, S::kValue>(values + stage * S::kValueBytes, p.v, p.v_dim, thread, 0,
                                      S::kKeys, key_row);
      value_ring.arrive_full(tile);
    }
    wait_copies<0>();
  } else {
    take_registers<kReaderRegisters>();
    const int lane = thread % 32;
    const int first_of_group = group * 64;
    const int first_of_warp = first_of_group + thread / 32 * 16;
    load_slabs<kReaderRows, S::kHead>(
        queries, p.q, p.head_dim, thread, first_of_group, 64,
        [&](int row) -> std::int64_t { return row < count ? rows.index(row) : -1; });
    commit_copies();
    if (thread < 64) {
      const int row = first_of_group + thread;
      ranges[row] = row < count ? p.rule.keys_of(rows.token(row)) : make_int2(0, 0);
    }
    wait_copies<0>();
    order_shared_writes();
    group_barrier(group);

    const std::uint32_t at_q = queries + static_cast<std::uint32_t>(first_of_group * 128);
    const float scale = p.scale * kLog2E;
    Softmax<S> softmax;
    std::uint32_t packed[S::kKeys / 16][4];
    // Probabilities of a tile: its scores are there.
    const auto take_tile = [&](float(&score)[1][S::kKeys / 8][4], std::int32_t tile) {
      const std::int32_t from = seen.begin + tile * S::kKeys;
      if (seen.cut(from, from + S::kKeys)) hide_keys<S>(score, ranges + first_of_warp, from, lane);
      softmax.take(score, scale);
      pack_sums(packed, score[0]);
    };
    const auto keys_of = [&](std::int32_t tile) {
      key_ring.wait_full(tile);
      return keys + static_cast<std::uint32_t>(tile % S::kStages) * S::kKeyBytes;
    };
    const auto values_of = [&](std::int32_t tile) {
      value_ring.wait_full(tile);
      return values + static_cast<std::uint32_t>(tile % S::kStages) * S::kValueBytes;
    };
    if (tiles > 0) {
      float score[1][S::kKeys / 8][4];
      const std::uint32_t at_k = keys_of(0);
      order_shared_writes();
      begin_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kHead>(score[0], at_q, at_k);
      commit_products();
      wait_products<0>();
      settle(score[0]);
      if (lane == 0) key_ring.arrive_empty(0);
      take_tile(score, 0);
    }
    for (std::int32_t tile = 1; tile < tiles; ++tile) {
      // The values of the tile before and the scores of this one without a pause between them.
      float score[1][S::kKeys / 8][4];
      const std::uint32_t at_v = values_of(tile - 1);
      const std::uint32_t at_k = keys_of(tile);
      order_shared_writes();
      begin_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kHead>(score[0], at_q, at_k);
      multiply_packed<S::kKeys>(softmax.out[0], packed, at_v);
      commit_products();
      wait_products<0>();
      settle(score[0]);
      settle(softmax.out[0]);
      if (lane == 0) {
        key_ring.arrive_empty(tile);
        value_ring.arrive_empty(tile - 1);
      }
      take_tile(score, tile);
    }
    if (tiles > 0) {
      const std::uint32_t at_v = values_of(tiles - 1);
      order_shared_writes();
      begin_products();
      multiply_packed<S::kKeys>(softmax.out[0], packed, at_v);
      commit_products();
      wait_products<0>();
      settle(softmax.out[0]);
    }
    store_rows(p, softmax, rows, first_of_warp, count, lane);
  }
#endif
}

template <class S>
bool launch_forward(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  static const bool here = has_group_code(range_forward_group_kernel<S>);
  if (!here) return false;
  check(cudaFuncSetAttribute(range_forward_group_kernel<S>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
  const auto blocks = static_cast<unsigned>((problem.rows() + kReaderRows - 1) / kReaderRows);
  range_forward_group_kernel<S><<<dim3(blocks, static_cast<unsigned>(problem.kv_heads)),
                                  kGroupBlockThreads, S::kBytes, stream>>>(problem);
  check_launch("range_forward_group_kernel");
  return true;
}

}  // namespace

bool range_forward_group(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  // Without out there is nothing for half of the kernel to do.
  if (problem.out == nullptr || !fits_groups(problem.head_dim, problem.v_dim)) return false;
  bool done = false;
  with_group_dims(problem.head_dim, problem.v_dim, [&]<int kHeadDim, int kValueDim>() {
    done = problem.rule.range == KeyRange::kWindow
               ? launch_forward<Shape<kHeadDim, kValueDim, 64>>(problem, stream)
               : launch_forward<Shape<kHeadDim, kValueDim, 128>>(problem, stream);
  });
  return done;
}

}  // namespace nsa::cuda
