// Range attention, forward, by warpgroups (sm_90a).

#include <algorithm>

#include "kernels/attention/range_group.cuh"
#include "kernels/attention/range_softmax.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {

/// The cut of the work by padded head dims and the length of a key tile: longer ones where ranges
/// are long.
template <int kHeadDim, int kValueDim, int kTile>
struct ForwardGroupShape {
  static constexpr int kHead = kHeadDim;
  static constexpr int kValue = kValueDim;
  static constexpr int kRowTiles = 1;
  static constexpr int kKeys = kTile;
  static constexpr int kStages = kKeys == 64 ? 3 : 2;
  static constexpr int kQueryBytes = kTileBytes<kReaderRows, kHead>;
  static constexpr int kKeyBytes = kTileBytes<kKeys, kHead>;
  static constexpr int kValueBytes = kTileBytes<kKeys, kValue>;
  static constexpr int kBytes = 2 * kQueryBytes + kStages * (kKeyBytes + kValueBytes) + kAlignSlack;
};

namespace {

/// Tiles of kReaderRows rows of all KV heads, the KV head slowest, later rows first: those of long
/// ranges.
struct Items {
  std::int32_t tiles = 0;  ///< per KV head
  std::int32_t count = 0;
};

struct Item {
  std::int32_t kv_head, first_row, rows;

  __device__ Item(const Items& items, std::int32_t index, std::int32_t all_rows)
      : kv_head(index / items.tiles),
        first_row((items.tiles - 1 - index % items.tiles) * kReaderRows),
        rows(min(kReaderRows, all_rows - first_row)) {}
};

#if NSA_WARPGROUPS

/// What the warpgroups of a block share.
template <class S>
struct Shared {
  int2 ranges[2][kReaderRows];  ///< of keys, by row
  Ring<2> queries;
  Ring<S::kStages> keys;
  Ring<S::kStages> values;
};

/// Where the tiles stand.
template <class S>
struct Tiles {
  std::uint32_t first;

  __device__ std::uint32_t queries(std::int32_t step) const {
    return first + static_cast<std::uint32_t>(step % 2 * S::kQueryBytes);
  }
  __device__ std::uint32_t keys(std::int32_t step) const {
    return first +
           static_cast<std::uint32_t>(2 * S::kQueryBytes + step % S::kStages * S::kKeyBytes);
  }
  __device__ std::uint32_t values(std::int32_t step) const {
    return first + static_cast<std::uint32_t>(2 * S::kQueryBytes + S::kStages * S::kKeyBytes +
                                              step % S::kStages * S::kValueBytes);
  }
};

template <class S>
__device__ __forceinline__ void load_items(const RangeProblem<bf16>& p, const Items& items,
                                           Shared<S>& shared, const Tiles<S>& tiles, int thread) {
  const std::int64_t k_stride = static_cast<std::int64_t>(p.kv_heads) * p.head_dim;
  const std::int64_t v_stride = static_cast<std::int64_t>(p.kv_heads) * p.v_dim;
  std::int32_t step = 0;
  std::int32_t turn = 0;
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < items.count;
       index += static_cast<std::int32_t>(gridDim.x), ++turn) {
    const Item item(items, index, p.rows());
    const RowMap rows(p, item.first_row, item.kv_head);
    shared.queries.wait_empty(turn);
    shared.ranges[turn % 2][thread] =
        thread < item.rows ? p.rule.keys_of(rows.token(thread)) : make_int2(0, 0);
    shared.queries.arrive_full_now(turn);
    load_packed_rows<kReaderRows, kReaderRows, S::kHead>(tiles.queries(turn), p.q, rows, p.head_dim,
                                                         thread, 0, item.rows);
    shared.queries.arrive_full(turn);
    const TileKeys seen(p.rule, rows.token(0), rows.token(item.rows - 1));
    const std::int64_t first = static_cast<std::int64_t>(seen.begin) * p.kv_heads + item.kv_head;
    const bf16* k = p.k + first * p.head_dim;
    const bf16* v = p.v + first * p.v_dim;
    for (std::int32_t left = seen.end - seen.begin; left > 0; left -= S::kKeys, ++step) {
      shared.keys.wait_empty(step);
      load_rows_apart<S::kKeys, S::kKeys, S::kHead>(tiles.keys(step), k, k_stride, p.head_dim,
                                                    thread, 0, left);
      shared.keys.arrive_full(step);
      shared.values.wait_empty(step);
      load_rows_apart<S::kKeys, S::kKeys, S::kValue>(tiles.values(step), v, v_stride, p.v_dim,
                                                     thread, 0, left);
      shared.values.arrive_full(step);
      k += S::kKeys * k_stride;
      v += S::kKeys * v_stride;
    }
  }
  wait_copies<0>();
}

/// One item by one of the warpgroups that multiply; `step` counts key tiles of all items.
template <class S>
__device__ __forceinline__ void attend_item(const RangeProblem<bf16>& p, const Item& item,
                                            Shared<S>& shared, const Tiles<S>& tiles,
                                            std::int32_t turn, std::int32_t& step) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int lane = thread % 32;
  const int first_of_group = static_cast<int>(threadIdx.x) / kGroupThreads * 64;
  const int first_of_warp = first_of_group + thread / 32 * 16;
  const int2* ranges = shared.ranges[turn % 2];
  shared.queries.wait_full(turn);
  const TileKeys seen(ranges[0], ranges[item.rows - 1]);
  const std::uint32_t at_q = tiles.queries(turn) + static_cast<std::uint32_t>(first_of_group * 128);
  const float scale = p.scale * kLog2E;
  Softmax<S> softmax;
  std::uint32_t packed[S::kKeys / 16][4];
  float shrink[1][2];
  // Whether the sums so far must be rescaled.
  const auto weigh = [&](float(&score)[1][S::kKeys / 8][4], std::int32_t from) {
    if (seen.cut(from, from + S::kKeys)) hide_keys<S>(score, ranges + first_of_warp, from, lane);
    return softmax.weigh(score, scale, shrink);
  };
  if (seen.begin < seen.end) {
    float score[1][S::kKeys / 8][4];
    shared.keys.wait_full(step);
    order_shared_writes();
    begin_products();
    multiply_slabs<kReaderRows, S::kKeys, S::kHead>(score[0], at_q, tiles.keys(step));
    commit_products();
    wait_products<0>();
    settle(score[0]);
    if (lane == 0) shared.keys.arrive_empty(step);
    weigh(score, seen.begin);
    pack_sums(packed, score[0]);
    for (std::int32_t from = seen.begin + S::kKeys; from < seen.end; from += S::kKeys) {
      // The scores of this tile and the values of the one before without a pause between them; the
      // softmax goes on beside the latter.
      float next[1][S::kKeys / 8][4];
      shared.keys.wait_full(step + 1);
      shared.values.wait_full(step);
      order_shared_writes();
      begin_products();
      multiply_slabs<kReaderRows, S::kKeys, S::kHead>(next[0], at_q, tiles.keys(step + 1));
      commit_products();
      multiply_packed<S::kKeys>(softmax.out[0], packed, tiles.values(step));
      commit_products();
      wait_products<1>();
      settle(next[0]);
      if (lane == 0) shared.keys.arrive_empty(step + 1);
      const bool grew = weigh(next, from);
      wait_products<0>();
      settle(softmax.out[0]);
      if (lane == 0) shared.values.arrive_empty(step);
      if (grew) softmax.rescale(shrink);
      pack_sums(packed, next[0]);
      ++step;
    }
    shared.values.wait_full(step);
    order_shared_writes();
    begin_products();
    multiply_packed<S::kKeys>(softmax.out[0], packed, tiles.values(step));
    commit_products();
    wait_products<0>();
    settle(softmax.out[0]);
    if (lane == 0) shared.values.arrive_empty(step);
    ++step;
  }
  __syncwarp();
  if (lane == 0) shared.queries.arrive_empty(turn);
  store_rows(p, softmax, RowMap(p, item.first_row, item.kv_head), first_of_warp, item.rows, lane);
}

#endif

/// One block: items in turn; of each kReaderRows rows (token, head of one group), 64 a warpgroup,
/// against the keys that any of them sees, a tile at a time. A third warpgroup loads, ahead into
/// the next item. Reads q, k, v and the documents; writes out, which must be wanted, and lse.
/// Softmax over base 2 in fp32 with a running maximum, probabilities rounded to bf16 before they
/// meet v. Any group up to RowMap::kMostGroup, head dims in multiples of 8 up to the padded ones.
template <class S>
__global__ void __launch_bounds__(kGroupBlockThreads, 1)
    range_forward_group_kernel(const RangeProblem<bf16> p, const Items items) {
#if NSA_WARPGROUPS
  extern __shared__ unsigned char memory[];
  __shared__ Shared<S> shared;
  const Tiles<S> tiles{aligned_tiles(memory)};
  if (threadIdx.x == 0) {
    shared.queries.init(2 * kGroupThreads, 4 * kReaders);
    shared.keys.init(kGroupThreads, 4 * kReaders);
    shared.values.init(kGroupThreads, 4 * kReaders);
  }
  __syncthreads();
  if (threadIdx.x >= kReaders * kGroupThreads) {
    give_registers<kLoaderRegisters>();
    load_items(p, items, shared, tiles, static_cast<int>(threadIdx.x) % kGroupThreads);
  } else {
    take_registers<kReaderRegisters>();
    std::int32_t step = 0;
    std::int32_t turn = 0;
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < items.count;
         index += static_cast<std::int32_t>(gridDim.x), ++turn) {
      attend_item(p, Item(items, index, p.rows()), shared, tiles, turn, step);
    }
  }
#endif
}

template <class S>
bool launch_forward(const RangeProblem<bf16>& problem, cudaStream_t stream) {
  static const bool here = has_group_code(range_forward_group_kernel<S>);
  if (!here) return false;
  check(cudaFuncSetAttribute(range_forward_group_kernel<S>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
  static const int multiprocessors = multiprocessor_count();
  Items items;
  items.tiles = (problem.rows() + kReaderRows - 1) / kReaderRows;
  items.count = items.tiles * problem.kv_heads;
  range_forward_group_kernel<S><<<static_cast<unsigned>(std::min(items.count, multiprocessors)),
                                  kGroupBlockThreads, S::kBytes, stream>>>(problem, items);
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
               ? launch_forward<ForwardGroupShape<kHeadDim, kValueDim, 64>>(problem, stream)
               : launch_forward<ForwardGroupShape<kHeadDim, kValueDim, 128>>(problem, stream);
  });
  return done;
}

}  // namespace nsa::cuda
