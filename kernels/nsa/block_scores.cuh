#pragma once

// From the probabilities of one tile of compressed keys to scores of selection blocks (equation 9),
// by one warp.

#include "kernels/common/reduce.cuh"
#include "kernels/nsa/block_scores.h"

namespace nsa::cuda {

/// Compressed keys of a tile.
constexpr int kScoreKeys = 64;
/// Floats from one query's probabilities to the next one's.
constexpr int kScoreStride = kScoreKeys + 4;

/// Block j is scored by keys [keys() * j - reach(), keys() * (j + 1)). At any key at most two
/// blocks have begun and not ended, for reach() < keys(): their sums are carried to the next tile.
struct ScoreRule {
  std::int32_t keys;   ///< compressed keys that begin in a block
  std::int32_t reach;  ///< keys before it that overlap it
  int lane_bits;  ///< 2^lane_bits lanes share one block's sum: long sums do not run in one lane

  __host__ __device__ explicit ScoreRule(const NsaGeometry& g)
      : keys(g.select_block / g.rate),
        reach(g.compress_block() / g.rate - 1),
        lane_bits(keys >= 32   ? 3
                  : keys >= 16 ? 2
                               : 0) {}

  __device__ std::int32_t begin(std::int32_t block) const { return keys * block - reach; }
  __device__ std::int32_t end(std::int32_t block) const { return keys * (block + 1); }
  /// score_weight() of the key `at` after begin().
  __device__ std::int32_t weight(std::int32_t at) const {
    return min(min(at + 1, reach + 1), keys + reach - at);
  }
};

/// The queries of a warp within one document.
struct ScoreRows {
  std::int32_t count = 0;                ///< queries
  std::int32_t position = 0;             ///< of the first one in its document
  float* importance = nullptr;           ///< of the first one
  std::int64_t stride = 0;               ///< from one query to the next
  const float* probabilities = nullptr;  ///< [count, kScoreStride], summed over the group's heads
  float* carry = nullptr;                ///< [count, 2], by the parity of the block
};

/// Takes in the tile of keys [first, first + kScoreKeys), whose unseen ones have probability 0.
/// Blocks that end in it are written. The whole warp calls this; probabilities and carry are of
/// this warp alone.
__device__ inline void score_tile(const ScoreRule& rule, const NsaGeometry& geometry,
                                  const ScoreRows& rows, std::int32_t first, int lane) {
  __syncwarp();  // the probabilities are written
  const std::int32_t last = first + kScoreKeys;
  const std::int32_t block_begin = first / rule.keys;
  const std::int32_t blocks = (last - 1 + rule.reach) / rule.keys - block_begin + 1;
  const int lanes = 1 << rule.lane_bits;
  const int part = lane & (lanes - 1);
  const int at_once = kWarpSize >> rule.lane_bits;
#pragma unroll 1
  for (std::int32_t query = 0; query < rows.count; ++query) {
    const float* probabilities = rows.probabilities + query * kScoreStride - first;
    const std::int32_t current = geometry.current_block(rows.position + query);
#pragma unroll 1
    for (std::int32_t start = 0; start < blocks; start += at_once) {
      const std::int32_t at = start + (lane >> rule.lane_bits);
      const std::int32_t block = block_begin + at;
      const std::int32_t begin = rule.begin(block);
      float sum = 0.0F;
      if (at < blocks) {
        const std::int32_t end = min(rule.end(block), last);
        for (std::int32_t key = max(begin, first) + part; key < end; key += lanes) {
          sum = fmaf(static_cast<float>(rule.weight(key - begin)), probabilities[key], sum);
        }
      }
      for (int step = lanes / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
      }
      float* carry = rows.carry + query * 2 + (block & 1);
      if (at < blocks && max(begin, 0) < first) sum += *carry;
      __syncwarp();  // carries are read before they are written
      if (at >= blocks || part != 0) continue;
      if (rule.end(block) > last) {
        *carry = sum;
      } else if (block <= current) {
        rows.importance[query * rows.stride + block] = sum;
      }
    }
  }
  __syncwarp();
}

/// Writes the blocks that end after all tiles, of which there were `keys` keys.
__device__ inline void score_rest(const ScoreRule& rule, const NsaGeometry& geometry,
                                  const ScoreRows& rows, std::int32_t keys, int lane) {
  for (std::int32_t query = 0; query < rows.count; ++query) {
    const std::int32_t current = geometry.current_block(rows.position + query);
    for (std::int32_t block = keys / rule.keys + lane; block <= current; block += kWarpSize) {
      rows.importance[query * rows.stride + block] =
          max(rule.begin(block), 0) < keys ? rows.carry[query * 2 + (block & 1)] : 0.0F;
    }
  }
}

}  // namespace nsa::cuda
