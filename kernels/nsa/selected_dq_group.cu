// The gradient of the queries of selected attention, by warps with separate tasks (sm_90a).

#include "kernels/nsa/selected_group.h"
#include "kernels/nsa/selected_walk_rows.cuh"

namespace nsa::cuda {
namespace {

#if NSA_WARPGROUPS

/// Keys whose scores are in registers at once.
constexpr int kPart = 32;

/// One warp's rows: probabilities again from lse, and the sum of the gradients of the scores times
/// keys.
template <class S>
struct DqRows {
  static constexpr int kDim = S::kDim;
  const SelectedProblem<bf16>& p;
  float scale;
  int lane;
  std::uint32_t q[kDim / 16][4];
  std::uint32_t dout[kDim / 16][4];
  float dq[kDim / 8][4];
  float lse[2];  ///< over base 2
  float gate[2];
  float delta[2];

  __device__ DqRows(const SelectedProblem<bf16>& problem, int own_lane)
      : p(problem), scale(problem.scale * kLog2E), lane(own_lane) {}

  __device__ __forceinline__ void begin(const WalkRows& rows) {
    rows.load<kDim>(q, p.q, lane);
    rows.load<kDim>(dout, p.dout, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool real = rows.token[half] >= 0;
      lse[half] = real ? p.lse[rows.row[half]] * kLog2E : 0.0F;
      gate[half] = real ? p.gates[rows.row[half] * 3] : 0.0F;
      delta[half] = real ? p.deltas[rows.row[half] * 3] : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) dq[j][c] = 0.0F;
    }
  }

  __device__ __forceinline__ int read(const WalkRows& rows, const WalkTile& tile,
                                      std::uint32_t keys) {
    const std::uint32_t k_columns = keys + lane_offset_columns<64>(lane);
    const std::uint32_t k_rows = keys + lane_offset_rows<64>(lane);
    std::int32_t seen[2];
    rows.visible(tile, seen);
    const bool hidden = __any_sync(0xFFFFFFFFU, min(seen[0], seen[1]) < kWalkKeys);
#pragma unroll
    for (int first = 0; first < kWalkKeys; first += kPart) {
      float score[kPart / 8][4] = {};
      float dp[kPart / 8][4] = {};
      multiply_keys<kDim>(score, q, k_columns, first);
      multiply_keys<kDim>(dp, dout, k_columns + S::kTileSize, first);
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float probability = exp2_fast(fmaf(score[j][c], scale, -lse[c / 2]));
          score[j][c] = probability * fmaf(gate[c / 2], dp[j][c], -delta[c / 2]);
        }
      }
      if (hidden) {
#pragma unroll
        for (int j = 0; j < kPart / 8; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (first + j * 8 + lane % 4 * 2 + c % 2 >= seen[c / 2]) score[j][c] = 0.0F;
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kPart / 16; ++step) {
        std::uint32_t a[4];
        pack_a(a, score[2 * step], score[2 * step + 1]);
        multiply_rows<kDim>(dq, a, k_rows, first + step * 16);
      }
    }
    return lane_after<kDim>(dq);
  }

  __device__ __forceinline__ void finish(const WalkRows& rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_sums<kDim>(rows.token[half] >= 0 ? p.dq + rows.row[half] * kDim : nullptr, kDim, dq,
                       half, p.scale, lane, p.accumulate_dq);
    }
  }
};

#endif

/// One block: items in turn (selected_walk.cuh). Reads q, k, v, dout, lse, gates, deltas, blocks;
/// writes dq, every row by one warp, or adds to it. dS = p (g dP - delta) in fp32, rounded to bf16
/// before it meets k.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    selected_dq_group_kernel(const __grid_constant__ CUtensorMap keys,
                             const __grid_constant__ CUtensorMap values,
                             const SelectedProblem<bf16> p, const WalkItems items) {
#if NSA_WARPGROUPS
  walk_blocks<S, DqRows<S>>(keys, values, p, items, p.q, p.dout);
#endif
}

}  // namespace

void selected_dq_group(const SelectedProblem<bf16>& problem, cudaStream_t stream) {
  if (problem.tokens() == 0) return;
  with_walk_shape(problem, [&]<class S>() {
    launch_walk<S>(selected_dq_group_kernel<S>, "selected_dq_group_kernel", problem, stream);
  });
}

}  // namespace nsa::cuda
