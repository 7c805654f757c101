#pragma once

// The softmax of range attention in the registers of a warp, for both tensor-core paths. S, the cut
// of the work, names kRowTiles (of 16 rows, per warp), kKeys (per tile) and kValue (columns of v).

#include "kernels/attention/range_tiles.cuh"

namespace nsa::cuda {

/// The running softmax of a warp's rows: what a thread holds of it.
template <class S>
struct Softmax {
  float out[S::kRowTiles][S::kValue / 8][4] = {};
  float most[S::kRowTiles][2];   ///< of the scores, times scale, base 2
  float total[S::kRowTiles][2];  ///< of this thread's columns

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      most[i][0] = most[i][1] = kNoScore;
      total[i][0] = total[i][1] = 0.0F;
    }
  }

  /// Scores of one tile become probabilities up to the final total. True, for the whole warp, where
  /// a maximum grew: then what was summed so far must be rescaled by `shrink`.
  __device__ bool weigh(float (&score)[S::kRowTiles][S::kKeys / 8][4], float scale,
                        float (&shrink)[S::kRowTiles][2]) {
    bool grew = false;
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = kNoScore;
#pragma unroll
        for (int j = 0; j < S::kKeys / 8; ++j) {
          largest = fmaxf(largest, fmaxf(score[i][j][2 * half], score[i][j][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
        const float grown = fmaxf(most[i][half], largest * scale);
        grew = grew || grown > most[i][half];
        shrink[i][half] = exp2_fast(most[i][half] - grown);
        most[i][half] = grown;
        float sum = 0.0F;
#pragma unroll
        for (int j = 0; j < S::kKeys / 8; ++j) {
#pragma unroll
          for (int c = 2 * half; c < 2 * half + 2; ++c) {
            score[i][j][c] = exp2_fast(fmaf(score[i][j][c], scale, -grown));
            sum += score[i][j][c];
          }
        }
        total[i][half] = fmaf(total[i][half], shrink[i][half], sum);
      }
    }
    return __any_sync(0xFFFFFFFFU, grew);
  }
  __device__ void rescale(const float (&shrink)[S::kRowTiles][2]) {
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < S::kValue / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i][j][c] *= shrink[i][c / 2];
      }
    }
  }
};

/// -infinity where a row does not see a key. `ranges` are the rows' of the warp, `from` the first
/// key of the tile.
template <class S>
__device__ __forceinline__ void hide_keys(float (&score)[S::kRowTiles][S::kKeys / 8][4],
                                          const int2* ranges, std::int32_t from, int lane) {
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int2 range = ranges[i * 16 + half * 8 + lane / 4];
      const std::int32_t first = range.x - from - lane % 4 * 2;
      const std::int32_t end = range.y - from - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = j * 8 + c;
          if (key < first || key >= end) score[i][j][2 * half + c] = -INFINITY;
        }
      }
    }
  }
}

/// The rows of a warp, to out (unless null) and lse. Its first is `first` of the block's, which has
/// `count`.
template <class S>
__device__ __forceinline__ void store_rows(const RangeProblem<bf16>& p, const Softmax<S>& softmax,
                                           const RowMap& rows, int first, std::int32_t count,
                                           int lane) {
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = softmax.total[i][half];
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      const int row = first + i * 16 + half * 8 + lane / 4;
      const bool valid = row < count;
      const std::int64_t index = valid ? rows.index(row) : 0;
      if (valid && lane % 4 == 0) {
        p.lse[index] = total > 0.0F ? (softmax.most[i][half] + log2f(total)) * kLn2 : -INFINITY;
      }
      if (p.out == nullptr) continue;
      store_sums<S::kValue>(valid ? p.out + index * p.v_dim : nullptr, p.v_dim, softmax.out[i],
                            half, total > 0.0F ? 1.0F / total : 0.0F, lane);
    }
  }
}

}  // namespace nsa::cuda
