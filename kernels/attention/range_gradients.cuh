#pragma once

// Gradients of the scores in registers, for both tensor-core paths. S, the cut of the work, names
// kRowTiles (of 16 rows, per warp), kKeys (per tile) and kHead (columns of q).

#include "kernels/attention/range_tiles.cuh"

namespace nsa::cuda {

/// What a row of queries brings to the gradients of its scores.
struct RowTerms {
  float lse2;  ///< base 2
  float gate;
  float delta;
  std::int32_t padding;
  int2 keys;

  /// Of a row of the block, which has `count`; those past the last add nothing.
  static __device__ RowTerms of(const RangeProblem<bf16>& p, const RowMap& rows, int row,
                                std::int32_t count) {
    if (row >= count) return {0.0F, 0.0F, 0.0F, 0, make_int2(0, 0)};
    const std::int64_t index = rows.index(row);
    return {p.lse[index] * kLog2E, p.gates == nullptr ? 1.0F : p.gates[index * p.stat_stride],
            p.deltas[index * p.stat_stride], 0, p.rule.keys_of(rows.token(row))};
  }
};

/// score (of q and k) becomes the probability; 0 where a row does not see a key, if `cut`.
template <class S>
__device__ __forceinline__ void row_probability(float (&score)[S::kRowTiles][S::kKeys / 8][4],
                                                const RowTerms* terms, float scale,
                                                std::int32_t from, bool cut, int lane) {
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowTerms& row = terms[i * 16 + half * 8 + lane / 4];
      const float lse2 = row.lse2;
      const std::int32_t first = row.keys.x - from - lane % 4 * 2;
      const std::int32_t end = row.keys.y - from - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& at = score[i][j][2 * half + c];
          at = exp2_fast(fmaf(at, scale, -lse2));
          const int key = j * 8 + c;
          if (cut && (key < first || key >= end)) at = 0.0F;
        }
      }
    }
  }
}

/// The probability becomes the gradient of the scaled score; `product` is dout times v.
template <class S>
__device__ __forceinline__ void row_gradient(float (&probability)[S::kRowTiles][S::kKeys / 8][4],
                                             const float (&product)[S::kRowTiles][S::kKeys / 8][4],
                                             const RowTerms* terms, int lane) {
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowTerms& row = terms[i * 16 + half * 8 + lane / 4];
      const float gate = row.gate;
      const float delta = row.delta;
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) {
          probability[i][j][c] *= fmaf(gate, product[i][j][c], -delta);
        }
      }
    }
  }
}

/// The rows of a warp, to dq. Its first is `first` of the block's, which has `count`.
template <class S>
__device__ __forceinline__ void store_dq(const RangeProblem<bf16>& p,
                                         const float (&dq)[S::kRowTiles][S::kHead / 8][4],
                                         const RowMap& rows, int first, std::int32_t count,
                                         int lane) {
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + i * 16 + half * 8 + lane / 4;
      store_sums<S::kHead>(row < count ? p.dq + rows.index(row) * p.head_dim : nullptr, p.head_dim,
                           dq[i], half, p.scale, lane, p.accumulate_dq);
    }
  }
}

}  // namespace nsa::cuda
