// The top-n step of NSA, one warp a query and KV head.

#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"
#include "kernels/nsa/top_blocks.h"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 4;

/// Grows with the number, and is above 0 even for what is none: 0 stands for "no block". Both zeros
/// are one; NaN comes last, so that a run that diverged still selects blocks that exist.
__device__ __forceinline__ std::uint32_t order_of(float score) {
  if (isnan(score)) return 1U;
  const std::uint32_t bits = __float_as_uint(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The blocks that are not forced, [begin, end): in registers, kPerLane a lane, or read again each
/// time where kPerLane is 0.
template <int kPerLane>
class Candidates {
 public:
  __device__ Candidates(const float* scores, std::int32_t begin, std::int32_t end, int lane)
      : scores_(scores), begin_(begin), end_(end), lane_(lane) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) kept_[i] = read(begin + lane + i * kWarpSize);
  }
  /// How many have at least this order, for the whole warp.
  __device__ std::int32_t count_from(std::uint32_t order) const {
    std::int32_t count = 0;
    if constexpr (kPerLane > 0) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) count += kept_[i] >= order ? 1 : 0;
    } else {
      for (std::int32_t j = begin_ + lane_; j < end_; j += kWarpSize) {
        count += read(j) >= order ? 1 : 0;
      }
    }
    return __reduce_add_sync(0xFFFFFFFFU, count);
  }
  __device__ std::uint32_t read(std::int32_t block) const {
    return block < end_ ? order_of(scores_[block]) : 0U;
  }

 private:
  const float* scores_;
  std::int32_t begin_, end_;
  int lane_;
  std::uint32_t kept_[kPerLane > 0 ? kPerLane : 1];
};

/// The largest order that `wanted` candidates reach: the wanted-th best, or anything between it and
/// the next one.
template <int kPerLane>
__device__ std::uint32_t threshold(const Candidates<kPerLane>& candidates, std::int32_t wanted) {
  std::uint32_t found = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t tried = found | 1U << bit;
    const std::int32_t count = candidates.count_from(tried);
    if (count < wanted) continue;
    found = tried;
    if (count == wanted) break;
  }
  return found;
}

/// One warp: the blocks of one query and KV head. Reads its importances, writes top_n indices. The
/// threshold is searched bit by bit among ordered integers, so any number of blocks and any top_n
/// will do; equal importances go to the lower index.
template <int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarpSize) rank_blocks_kernel(const BlockRanking r) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= static_cast<std::int64_t>(r.count) * r.kv_heads) return;
  const std::int32_t token = r.first + static_cast<std::int32_t>(row / r.kv_heads);
  const std::int32_t t = token - r.documents.bounds[r.documents.of_token[token]];
  const float* scores = r.importance + row * r.stride;
  std::int32_t* blocks =
      r.blocks + (static_cast<std::int64_t>(r.first) * r.kv_heads + row) * r.geometry.top_n;

  const std::int32_t current = r.geometry.current_block(t);
  const std::int32_t taken = r.geometry.blocks_taken(t);
  const std::int32_t free_begin = min(r.geometry.initial, current + 1);
  const std::int32_t free_end = max(free_begin, current - r.geometry.local + 1);
  const std::int32_t wanted = taken - free_begin - (current + 1 - free_end);
  for (std::int32_t j = lane; j < free_begin; j += kWarpSize) blocks[j] = j;
  for (std::int32_t j = free_end + lane; j <= current; j += kWarpSize) {
    blocks[free_begin + wanted + j - free_end] = j;
  }
  for (std::int32_t slot = taken + lane; slot < r.geometry.top_n; slot += kWarpSize) {
    blocks[slot] = -1;
  }
  if (wanted <= 0) return;

  const Candidates<kPerLane> candidates(scores, free_begin, free_end, lane);
  const bool all = wanted == free_end - free_begin;
  const std::uint32_t least = all ? 0U : threshold(candidates, wanted);
  // Those above the threshold are taken whatever their index; of those at it the first ones.
  const std::int32_t above = all ? wanted : candidates.count_from(least + 1);
  std::int32_t ties_left = wanted - above;
  std::int32_t written = free_begin;
  const std::uint32_t before = (1U << lane) - 1U;
  for (std::int32_t first = free_begin; first < free_end; first += kWarpSize) {
    const std::int32_t j = first + lane;
    const std::uint32_t order = candidates.read(j);
    const bool tie = j < free_end && order == least;
    const std::uint32_t ties = __ballot_sync(0xFFFFFFFFU, tie);
    const bool chosen =
        j < free_end && (order > least || (tie && __popc(ties & before) < ties_left));
    const std::uint32_t choice = __ballot_sync(0xFFFFFFFFU, chosen);
    if (chosen) blocks[written + __popc(choice & before)] = j;
    written += __popc(choice);
    ties_left -= min(ties_left, __popc(ties));
  }
}

template <int kPerLane>
void launch(const BlockRanking& ranking, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(ranking.count) * ranking.kv_heads;
  rank_blocks_kernel<kPerLane>
      <<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * kWarpSize, 0, stream>>>(
          ranking);
  check_launch("rank_blocks_kernel");
}

}  // namespace

void rank_blocks(const BlockRanking& ranking, cudaStream_t stream) {
  if (ranking.count == 0 || ranking.kv_heads == 0) return;
  if (ranking.most_blocks <= 8 * kWarpSize) return launch<8>(ranking, stream);
  if (ranking.most_blocks <= 32 * kWarpSize) return launch<32>(ranking, stream);
  launch<0>(ranking, stream);
}

void CudaOps::apply(const SelectBlocks& op) {
  const auto most = op.geometry.selection_blocks(static_cast<std::int32_t>(op.documents.longest()));
  rank_blocks({.blocks = op.blocks.as<std::int32_t>(),
               .importance = op.importance.as<float>(),
               .stride = op.importance.dim(2),
               .first = 0,
               .count = static_cast<std::int32_t>(op.importance.dim(0)),
               .kv_heads = static_cast<std::int32_t>(op.importance.dim(1)),
               .most_blocks = most,
               .geometry = op.geometry,
               .documents = documents_.view(op.documents)},
              stream_);
}

}  // namespace nsa::cuda
