// Selected attention, forward, by warps with separate tasks (sm_90a).

#include "kernels/nsa/selected_group.h"
#include "kernels/nsa/selected_walk_rows.cuh"

namespace nsa::cuda {
namespace {

#if NSA_WARPGROUPS

/// Lower than any score: a maximum before the first key. Finite, so that differences are.
constexpr float kLowest = -1e30F;

/// One warp's softmax over base 2 in fp32 with a running maximum, and the sum of values.
template <class S>
struct ForwardRows {
  static constexpr int kDim = S::kDim;
  const SelectedProblem<bf16>& p;
  float scale;
  int lane;
  std::uint32_t q[kDim / 16][4];
  float out[kDim / 8][4];
  float most[2];
  float total[2];

  __device__ ForwardRows(const SelectedProblem<bf16>& problem, int own_lane)
      : p(problem), scale(problem.scale * kLog2E), lane(own_lane) {}

  __device__ __forceinline__ void begin(const WalkRows& rows) {
    rows.load<kDim>(q, p.q, lane);
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) out[j][c] = 0.0F;
    }
    most[0] = most[1] = kLowest;
    total[0] = total[1] = 0.0F;
  }

  __device__ __forceinline__ int read(const WalkRows& rows, const WalkTile& tile,
                                      std::uint32_t keys) {
    const std::uint32_t at_k = keys + lane_offset_columns<64>(lane);
    const std::uint32_t at_v = keys + S::kTileSize + lane_offset_rows<64>(lane);
    float score[kWalkKeys / 8][4] = {};
    multiply_keys<kDim>(score, q, at_k, 0);
    std::int32_t seen[2];
    rows.visible(tile, seen);
    if (__any_sync(0xFFFFFFFFU, min(seen[0], seen[1]) < kWalkKeys)) {
#pragma unroll
      for (int j = 0; j < kWalkKeys / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (j * 8 + lane % 4 * 2 + c % 2 >= seen[c / 2]) score[j][c] = -INFINITY;
        }
      }
    }
    raise(score);
    add_values(score, at_v);
    return lane_after<kDim>(out);
  }

  __device__ __forceinline__ void finish(const WalkRows& rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(0xFFFFFFFFU, total[half], 1);
      total[half] += __shfl_xor_sync(0xFFFFFFFFU, total[half], 2);
      const bool real = rows.token[half] >= 0;
      const float inverse = total[half] > 0.0F ? 1.0F / total[half] : 0.0F;
      store_sums<kDim>(real ? p.out + rows.row[half] * kDim : nullptr, kDim, out, half, inverse,
                       lane);
      if (real && lane % 4 == 0) {
        p.lse[rows.row[half]] =
            total[half] > 0.0F ? (most[half] + log2f(total[half])) * kLn2 : -INFINITY;
      }
    }
  }

 private:
  /// The maximum takes these scores in; what was summed below it shrinks.
  __device__ __forceinline__ void raise(const float (&score)[kWalkKeys / 8][4]) {
    float largest[2] = {kLowest, kLowest};
#pragma unroll
    for (int j = 0; j < kWalkKeys / 8; ++j) {
      largest[0] = fmaxf(largest[0], fmaxf(score[j][0], score[j][1]));
      largest[1] = fmaxf(largest[1], fmaxf(score[j][2], score[j][3]));
    }
    float grown[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xFFFFFFFFU, largest[half], 1));
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xFFFFFFFFU, largest[half], 2));
      grown[half] = fmaxf(most[half], largest[half] * scale);
    }
    if (!__any_sync(0xFFFFFFFFU, grown[0] > most[0] || grown[1] > most[1])) return;
    const float shrink[2] = {exp2_fast(most[0] - grown[0]), exp2_fast(most[1] - grown[1])};
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) out[j][c] *= shrink[c / 2];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] *= shrink[half];
      most[half] = grown[half];
    }
  }
  __device__ __forceinline__ void add_values(float (&score)[kWalkKeys / 8][4], std::uint32_t at_v) {
#pragma unroll
    for (int step = 0; step < kWalkKeys / 16; ++step) {
#pragma unroll
      for (int j = 2 * step; j < 2 * step + 2; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          score[j][c] = exp2_fast(fmaf(score[j][c], scale, -most[c / 2]));
          total[c / 2] += score[j][c];
        }
      }
      std::uint32_t a[4];
      pack_a(a, score[2 * step], score[2 * step + 1]);
      multiply_rows<kDim>(out, a, at_v, step * 16);
    }
  }
};

#endif

/// One block: items in turn (selected_walk.cuh). Reads q, k, v, blocks; writes out and lse, every
/// row by one warp. Softmax over base 2 in fp32 with a running maximum over blocks in ascending
/// order, probabilities rounded to bf16 before they meet v.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    selected_forward_group_kernel(const __grid_constant__ CUtensorMap keys,
                                  const __grid_constant__ CUtensorMap values,
                                  const SelectedProblem<bf16> p, const WalkItems items) {
#if NSA_WARPGROUPS
  walk_blocks<S, ForwardRows<S>>(keys, values, p, items, p.q);
#endif
}

}  // namespace

bool fits_selected_group(const SelectedProblem<bf16>& problem) {
  static const bool here = has_group_code(selected_forward_group_kernel<WalkShape<64>>);
  const std::int32_t group = problem.group;
  return here && !problem.general && problem.head_dim == problem.v_dim &&
         (problem.head_dim == 64 || problem.head_dim == 128) && problem.select_block == kWalkKeys &&
         group <= 64 && (group & (group - 1)) == 0;
}

void selected_forward_group(const SelectedProblem<bf16>& problem, cudaStream_t stream) {
  if (problem.tokens() == 0) return;
  with_walk_shape(problem, [&]<class S>() {
    launch_walk<S>(selected_forward_group_kernel<S>, "selected_forward_group_kernel", problem,
                   stream);
  });
}

}  // namespace nsa::cuda
