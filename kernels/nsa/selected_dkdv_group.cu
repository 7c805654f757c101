// The gradients of keys and values of selected attention, by warpgroups (sm_90a).

#include <cuda_fp16.h>

#include "kernels/attention/range_group.cuh"
#include "kernels/attention/warpgroup_rows.cuh"
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/check.h"
#include "kernels/nsa/selected_dkdv.h"

namespace nsa::cuda {
namespace {

constexpr int kBlockKeys = 64;
constexpr int kExchanges = 2;
/// Registers per thread: of the warpgroup that loads, of the two that multiply.
[[maybe_unused]] constexpr int kLoaderShare = 40;
[[maybe_unused]] constexpr int kReaderShare = 232;
/// Probabilities cross from one warpgroup to the other in half precision, times 2^15: all above
/// 2^-29 keep eleven bits.
constexpr float kExchangeBits = 15.0F;
constexpr float kExchangeUnit = 1.0F / 32768.0F;

/// The cut of the work by head dim, that of keys and of values.
template <int kHeadDim>
struct GroupShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kRows = kDim == 64 ? 128 : 64;  ///< (query, head) of a stage
  static constexpr int kStages = kDim == 64 ? 5 : 6;
  static constexpr int kTileSize = kTileBytes<kRows, kDim>;  ///< of q, of dout
  static constexpr int kStageBytes = 2 * kTileSize;
  static constexpr int kRecordBytes = kRows * 16;
  static constexpr int kExchangeBytes = kBlockKeys * kRows * 2;
  static constexpr int kBytes =
      kStages * (kStageBytes + kRecordBytes) + kExchanges * kExchangeBytes + kAlignSlack;
};

/// What a (query, head) multiplies with: of the exponent, then of what the exchange scales.
struct alignas(16) RowRecord {
  float offset;  ///< 15 - lse log2(e)
  float gate;
  float gate_again;
  float delta;
};

struct Arguments {
  SelectedProblem<bf16> p;
  BlockLists lists;
  const RowRecord* records;  ///< [tokens * kv_heads + 1, group]; the last pair weighs nothing
  float* partials;
  std::int32_t* next = nullptr;  ///< the part that nobody has taken yet
  std::int32_t shift = 0;        ///< 2^shift heads in a group
};

/// One thread: one row. Reads lse, gate and delta, writes its record, the padding too.
__global__ void __launch_bounds__(256)
    row_records_kernel(const SelectedProblem<bf16> p, RowRecord* records) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const std::int64_t rows = static_cast<std::int64_t>(p.tokens()) * p.kv_heads * p.group;
  if (row >= rows + p.group) return;
  RowRecord record{-INFINITY, 0.0F, 0.0F, 0.0F};
  if (row < rows) {
    record.offset = kExchangeBits - p.lse[row] * kLog2E;
    record.gate = p.gates[row * 3] * kExchangeUnit;
    record.gate_again = record.gate;
    record.delta = p.deltas[row * 3] * kExchangeUnit;
  }
  records[row] = record;
}

#if NSA_WARPGROUPS

/// Barriers of one thread block and what passes from the loading warp to the others.
template <class S>
struct Shared {
  Ring<S::kStages> tiles;
  Ring<kExchanges> exchanges[4];  ///< of the warps
  Ring<2> works;
  ListPart parts[2];

  __device__ void init() {
    tiles.init(1, 8);
    for (Ring<kExchanges>& exchange : exchanges) exchange.init(1, 1);
    works.init(1, 8);
  }
};

/// Where things stand in shared memory.
template <class S>
struct Places {
  std::uint32_t stages;

  __device__ std::uint32_t stage(std::int32_t at) const {
    return stages + static_cast<std::uint32_t>(at % S::kStages) * S::kStageBytes;
  }
  __device__ std::uint32_t exchange(std::int32_t at) const {
    return stages + static_cast<std::uint32_t>(S::kStages * S::kStageBytes +
                                               at % kExchanges * S::kExchangeBytes);
  }
  __device__ std::uint32_t records(std::int32_t at) const {
    return stages +
           static_cast<std::uint32_t>(S::kStages * S::kStageBytes + kExchanges * S::kExchangeBytes +
                                      at % S::kStages * S::kRecordBytes);
  }
};

__device__ __forceinline__ float2 load_shared_pair(std::uint32_t from) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(from));
  return value;
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ std::uint32_t pack_half(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ float2 unpack_half(std::uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

/// By one warp: takes parts and loads their rows, a stage after the other, until none is left.
template <class S>
__device__ __forceinline__ void load_parts(const Arguments& a, const CUtensorMap& queries,
                                           const CUtensorMap& douts, Shared<S>& shared,
                                           const Places<S>& places, int lane) {
  constexpr int kRounds = S::kRows / 32;
  const SelectedProblem<bf16>& p = a.p;
  const std::int32_t per_tile = S::kRows >> a.shift;
  const auto box = static_cast<std::uint32_t>(p.group) * 128;
  const auto nothing = static_cast<std::int32_t>(p.pair(p.tokens(), 0));
  std::int32_t at = 0;
  for (std::int32_t n = 0;; ++n) {
    std::int32_t index = lane == 0 ? atomicAdd(a.next, 1) : 0;
    index = __shfl_sync(0xFFFFFFFFU, index, 0);
    ListPart part{-1, 0, 0, -1};
    if (index < a.lists.most_parts) part = a.lists.parts[index];
    shared.works.wait_empty(n);
    if (lane == 0) {
      shared.parts[n % 2] = part;
      shared.works.arrive_full_now(n);
    }
    if (part.list < 0) return;
    const auto kv_head = part.list / static_cast<std::int32_t>(a.lists.ids);
    for (std::int32_t first = part.begin; first < part.end; first += per_tile, ++at) {
      std::int32_t pair[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const std::int32_t query = first + lane + i * 32;
        pair[i] = lane + i * 32 < per_tile && query < part.end
                      ? a.lists.queries[query] * p.kv_heads + kv_head
                      : nothing;
      }
      shared.tiles.wait_empty(at);
      const std::uint32_t full = shared_address(&shared.tiles.full[at % S::kStages]);
      if (lane == 0) barrier_arrive_expecting(full, S::kStageBytes + S::kRecordBytes);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int query = lane + i * 32;
        if (query >= per_tile) break;
        const std::int32_t row = pair[i] << a.shift;
        const std::uint32_t to = places.stage(at) + static_cast<std::uint32_t>(query) * box;
#pragma unroll
        for (int slab = 0; slab < S::kDim / 64; ++slab) {
          copy_box(to + slab * S::kRows * 128, queries, slab * 64, row, full);
          copy_box(to + S::kTileSize + slab * S::kRows * 128, douts, slab * 64, row, full);
        }
        copy_bulk(places.records(at) + static_cast<std::uint32_t>(query) * (box / 8),
                  a.records + row, box / 8, full);
      }
    }
  }
}

/// What a warp has of a part: its 16 keys, of which `keys` are in the block.
struct Block {
  std::int32_t key, keys, kv_head;
  std::int32_t early;  ///< queries of the part, its first ones, that do not see every key

  __device__ Block(const BlockLists& lists, const ListPart& part, int warp, int lane) {
    const auto ids = static_cast<std::int32_t>(lists.ids);
    const std::int32_t id = part.list % ids;
    const std::int32_t begin = lists.block_begin[id];
    kv_head = part.list / ids;
    key = begin + warp * 16;
    keys = lists.block_end[id] - key;
    // Queries ascend and are not before the block: fewer than its keys are before its last one.
    early = 0;
#pragma unroll
    for (int i = 0; i < kBlockKeys; i += 32) {
      const std::int32_t at = part.begin + i + lane;
      const bool hidden = at < part.end && lists.queries[at] < begin + kBlockKeys - 1;
      early += __popc(__ballot_sync(0xFFFFFFFFU, hidden));
    }
  }
};

/// The warp's 16 rows of x [tokens, kv_heads, kDim] as A operands, zeros past the block.
template <int kDim>
__device__ __forceinline__ void hold_rows(std::uint32_t (&held)[kDim / 16][4], const bf16* x,
                                          const SelectedProblem<bf16>& p, const Block& block,
                                          int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = lane / 4 + half * 8;
    const bool valid = key < block.keys;
    const auto* row = reinterpret_cast<const std::uint32_t*>(
        x + p.pair(block.key + (valid ? key : 0), block.kv_head) * kDim + lane % 4 * 2);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      held[step][half] = valid ? row[step * 8] : 0;
      held[step][2 + half] = valid ? row[step * 8 + 4] : 0;
    }
  }
}

/// Scores of keys after the query become -infinity. `first` is the tile's first query.
template <int kTiles>
__device__ __forceinline__ void hide_keys(float (&score)[kTiles][4], const Arguments& a,
                                          const ListPart& part, const Block& block,
                                          std::int32_t first, int lane) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int row = j * 8 + lane % 4 * 2 + c % 2;
      const std::int32_t token = a.lists.queries[min(first + (row >> a.shift), part.end - 1)];
      if (block.key + lane / 4 + c / 2 * 8 > token) score[j][c] = -INFINITY;
    }
  }
}

/// `packed` becomes the probabilities times the gates, `exchange` the probabilities themselves.
template <int kTiles>
__device__ __forceinline__ void to_probabilities(std::uint32_t (&packed)[kTiles / 2][4],
                                                 const float (&score)[kTiles][4], float scale,
                                                 std::uint32_t records, std::uint32_t exchange,
                                                 int lane) {
#pragma unroll
  for (int step = 0; step < kTiles / 2; ++step) {
    float gated[2][4];
    std::uint32_t halves[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = step * 2 + i;
      const std::uint32_t record =
          records + static_cast<std::uint32_t>((j * 8 + lane % 4 * 2) * 16);
      const float2 row[2] = {load_shared_pair(record), load_shared_pair(record + 16)};
      float probability[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        probability[c] = exp2_fast(fmaf(score[j][c], scale, row[c % 2].x));
        gated[i][c] = probability[c] * row[c % 2].y;
      }
      halves[2 * i] = pack_half(probability[0], probability[1]);
      halves[2 * i + 1] = pack_half(probability[2], probability[3]);
    }
    pack_a(packed[step], gated[0], gated[1]);
    store_shared(exchange + static_cast<std::uint32_t>(step * kGroupThreads * 16),
                 make_uint4(halves[0], halves[1], halves[2], halves[3]));
  }
}

/// `packed` becomes the gradients of the scores, from v dout' and the probabilities in `exchange`.
template <int kTiles>
__device__ __forceinline__ void to_gradients(std::uint32_t (&packed)[kTiles / 2][4],
                                             const float (&product)[kTiles][4],
                                             std::uint32_t records, std::uint32_t exchange,
                                             int lane) {
#pragma unroll
  for (int step = 0; step < kTiles / 2; ++step) {
    const uint4 halves =
        load_shared(exchange + static_cast<std::uint32_t>(step * kGroupThreads * 16));
    const float2 probability[2][2] = {{unpack_half(halves.x), unpack_half(halves.y)},
                                      {unpack_half(halves.z), unpack_half(halves.w)}};
    float gradient[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = step * 2 + i;
      const std::uint32_t record =
          records + static_cast<std::uint32_t>((j * 8 + lane % 4 * 2) * 16 + 8);
      const float2 row[2] = {load_shared_pair(record), load_shared_pair(record + 16)};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float2 pair = probability[i][c / 2];
        gradient[i][c] =
            (c % 2 == 1 ? pair.y : pair.x) * fmaf(row[c % 2].x, product[j][c], -row[c % 2].y);
      }
    }
    pack_a(packed[step], gradient[0], gradient[1]);
  }
}

/// The warp's rows of dk or dv, or of the slot of the part.
template <int kDim, bool kValues>
__device__ __forceinline__ void store_part(const float (&sum)[kDim / 8][4], const Arguments& a,
                                           const ListPart& part, const Block& block, int warp,
                                           int lane) {
  bf16* gradient = kValues ? a.p.dv : a.p.dk;
  const float factor = kValues ? 1.0F : a.p.scale;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = lane / 4 + half * 8;
    if (part.slot < 0) {
      bf16* row =
          key < block.keys ? gradient + a.p.pair(block.key + key, block.kv_head) * kDim : nullptr;
      store_sums<kDim>(row, kDim, sum, half, factor, lane);
    } else {
      float* row =
          a.partials +
          (static_cast<std::int64_t>(part.slot) * kBlockKeys + warp * 16 + key) * (2 * kDim) +
          (kValues ? kDim : 0);
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        *reinterpret_cast<float2*>(row + j * 8 + lane % 4 * 2) =
            make_float2(sum[j][2 * half] * factor, sum[j][2 * half + 1] * factor);
      }
    }
  }
}

/// By one warpgroup: dv (kValues) or dk of every part that the block takes. The first makes the
/// scores, k q', and hands the probabilities to the second, which makes v dout'. Each keeps k or v
/// and its sums in registers.
template <class S, bool kValues>
__device__ __forceinline__ void sum_parts(const Arguments& a, Shared<S>& shared,
                                          const Places<S>& places, int thread) {
  constexpr int kTiles = S::kRows / 8;
  constexpr std::uint32_t kFirst = kValues ? 0 : S::kTileSize;   // what k or v meets: q or dout
  constexpr std::uint32_t kSecond = kValues ? S::kTileSize : 0;  // what is summed: dout or q
  const SelectedProblem<bf16>& p = a.p;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const float scale = p.scale * kLog2E;
  const std::int32_t per_tile = S::kRows >> a.shift;
  Ring<kExchanges>& exchanges = shared.exchanges[warp];
  std::int32_t at = 0;
  for (std::int32_t n = 0;; ++n) {
    shared.works.wait_full(n);
    const ListPart part = shared.parts[n % 2];
    __syncwarp();
    if (lane == 0) shared.works.arrive_empty(n);
    if (part.list < 0) return;
    const Block block(a.lists, part, warp, lane);
    std::uint32_t held[S::kDim / 16][4];
    hold_rows<S::kDim>(held, kValues ? p.k : p.v, p, block, lane);
    float sum[S::kDim / 8][4] = {};
    float score[kTiles][4];
    std::uint32_t packed[kTiles / 2][4];

    const auto begin_scores = [&] {
      shared.tiles.wait_full(at);
      const std::uint32_t rows = places.stage(at) + kFirst;
      begin_products();
      multiply_by_rows(score, held[0], row_operand(rows));
#pragma unroll
      for (int step = 1; step < S::kDim / 16; ++step) {
        multiply_add_by_rows(score, held[step], row_operand(rows + slab_step<S::kRows>(step)));
      }
      commit_products();
    };
    const auto begin_sums = [&](std::int32_t first) {
      const std::uint32_t records = places.records(at);
      const std::uint32_t exchange = places.exchange(at) + static_cast<std::uint32_t>(thread * 16);
      if constexpr (kValues) {
        if (first < part.begin + block.early) hide_keys(score, a, part, block, first, lane);
        exchanges.wait_empty(at);
        to_probabilities(packed, score, scale, records, exchange, lane);
        __syncwarp();
        if (lane == 0) exchanges.arrive_full_now(at);
      } else {
        exchanges.wait_full(at);
        to_gradients(packed, score, records, exchange, lane);
        __syncwarp();
        if (lane == 0) exchanges.arrive_empty(at);
      }
      begin_products();
      multiply_packed<S::kRows>(sum, packed, places.stage(at) + kSecond);
      commit_products();
    };
    const auto finish_stage = [&](std::int32_t index) {
      __syncwarp();
      if (lane == 0) shared.tiles.arrive_empty(index);
    };
    if (part.begin < part.end) {
      begin_scores();
      wait_products<0>();
      settle(score);
      for (std::int32_t first = part.begin; first + per_tile < part.end; first += per_tile) {
        begin_sums(first);
        ++at;
        begin_scores();
        wait_products<0>();
        settle(score);
        settle(sum);
        finish_stage(at - 1);
      }
      begin_sums(part.begin + (part.end - 1 - part.begin) / per_tile * per_tile);
      wait_products<0>();
      settle(sum);
      finish_stage(at++);
    }
    store_part<S::kDim, kValues>(sum, a, part, block, warp, lane);
  }
}

#endif

/// One block: parts of lists, one after the other, as long as there are any: the 64 keys of one
/// block of one KV head against the queries of the part, gathered kRows rows (query, head) at a
/// time. One warp loads, one warpgroup sums dv, one dk. Reads q, k, v, dout, the records and the
/// lists; writes dk and dv where the part is the whole list, else its slot of `partials`. Products
/// in bf16 with fp32 sums in query order; probabilities times gates and the gradients of the scores
/// rounded to bf16, the probabilities of the latter to eleven bits before. Groups of 2^n heads up
/// to 64, blocks up to 64 keys.
template <class S>
__global__ void __launch_bounds__(kGroupBlockThreads, 1)
    selected_dkdv_group_kernel(const __grid_constant__ CUtensorMap queries,
                               const __grid_constant__ CUtensorMap douts, const Arguments a) {
#if NSA_WARPGROUPS
  extern __shared__ unsigned char memory[];
  __shared__ Shared<S> shared;
  const Places<S> places{aligned_tiles(memory)};
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  if (group == 2) {
    give_registers<kLoaderShare>();
    if (thread < 32) load_parts(a, queries, douts, shared, places, thread);
  } else if (group == 0) {
    take_registers<kReaderShare>();
    sum_parts<S, true>(a, shared, places, thread);
  } else {
    take_registers<kReaderShare>();
    sum_parts<S, false>(a, shared, places, thread);
  }
#endif
}

template <class S>
void launch(const SelectedProblem<bf16>& problem, const BlockLists& lists, float* partials,
            int multiprocessors, Scratch::Frame& frame, cudaStream_t stream) {
  const auto kernel = selected_dkdv_group_kernel<S>;
  const std::int64_t rows =
      static_cast<std::int64_t>(problem.tokens()) * problem.kv_heads * problem.group;
  auto* records = frame.take<RowRecord>(rows + problem.group);
  Arguments a{.p = problem, .lists = lists, .records = records, .partials = partials};
  a.next = frame.take<std::int32_t>(1);
  while (1 << a.shift < problem.group) ++a.shift;
  check(cudaMemsetAsync(a.next, 0, sizeof(std::int32_t), stream));
  row_records_kernel<<<static_cast<unsigned>((rows + problem.group + 255) / 256), 256, 0, stream>>>(
      problem, records);
  check_launch("row_records_kernel");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes));
  kernel<<<static_cast<unsigned>(multiprocessors), kGroupBlockThreads, S::kBytes, stream>>>(
      map_rows(problem.q, rows, S::kDim, problem.group),
      map_rows(problem.dout, rows, S::kDim, problem.group), a);
  check_launch("selected_dkdv_group_kernel");
}

}  // namespace

bool fits_dkdv_group(const SelectedProblem<bf16>& problem) {
  constexpr std::int32_t kMostGroup = 64;
  static const bool here = has_group_code(selected_dkdv_group_kernel<GroupShape<64>>);
  const std::int32_t group = problem.group;
  return here && problem.head_dim == problem.v_dim &&
         (problem.head_dim == 64 || problem.head_dim == 128) &&
         problem.select_block == kBlockKeys && group <= kMostGroup && (group & (group - 1)) == 0 &&
         problem.row(problem.tokens() + 1, 0, 0) < std::int64_t{1} << 31;
}

void selected_dkdv_group(const SelectedProblem<bf16>& problem, const BlockLists& lists,
                         float* partials, int multiprocessors, Scratch::Frame& frame,
                         cudaStream_t stream) {
  if (problem.head_dim == 64) {
    launch<GroupShape<64>>(problem, lists, partials, multiprocessors, frame, stream);
  } else {
    launch<GroupShape<128>>(problem, lists, partials, multiprocessors, frame, stream);
  }
}

}  // namespace nsa::cuda
