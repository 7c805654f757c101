// The score pass in fp32 arithmetic.

#include "kernels/common/check.h"
#include "kernels/nsa/block_scores.cuh"

namespace nsa::cuda {
namespace {

/// One warp a block: one query of one KV head, two keys a lane. Reads q, k and lse; writes the
/// importances up to the current block. All in fp32. Any head dim and group whose queries fit in
/// shared memory.
template <class T>
__global__ void __launch_bounds__(kWarpSize) score_blocks_plain_kernel(const ScoreProblem<T> p) {
  extern __shared__ float q[];  // [group, head_dim]
  __shared__ float probabilities[kScoreStride];
  __shared__ float carry[2];
  const int lane = static_cast<int>(threadIdx.x);
  const std::int32_t token = p.first + static_cast<std::int32_t>(blockIdx.x);
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t document = p.documents.of_token[token];
  const std::int32_t t = token - p.documents.bounds[document];
  const std::int64_t first_row =
      (static_cast<std::int64_t>(token) * p.kv_heads + kv_head) * p.group;
  for (std::int32_t i = lane; i < p.group * p.head_dim; i += kWarpSize) {
    q[i] = to_float(p.q[first_row * p.head_dim + i]);
  }
  const ScoreRule rule(p.geometry);
  ScoreRows rows;
  rows.count = 1;
  rows.position = t;
  rows.importance =
      p.importance + (static_cast<std::int64_t>(token - p.first) * p.kv_heads + kv_head) * p.stride;
  rows.probabilities = probabilities;
  rows.carry = carry;
  const std::int32_t keys = p.geometry.visible_blocks(t);
  const std::int32_t tiles = (keys + kScoreKeys - 1) / kScoreKeys;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    __syncwarp();
    for (int at = lane; at < kScoreKeys; at += kWarpSize) {
      const std::int32_t key = tile * kScoreKeys + at;
      float sum = 0.0F;
      if (key < keys) {
        const std::int64_t row = p.documents.compressed_begin[document] + key;
        const T* k = p.k + (row * p.kv_heads + kv_head) * p.head_dim;
        for (std::int32_t head = 0; head < p.group; ++head) {
          float score = 0.0F;
          for (std::int32_t c = 0; c < p.head_dim; ++c) {
            score = fmaf(q[head * p.head_dim + c], to_float(k[c]), score);
          }
          sum += expf(p.scale * score - p.lse[first_row + head]);
        }
      }
      probabilities[at] = sum;
    }
    score_tile(rule, p.geometry, rows, tile * kScoreKeys, lane);
  }
  score_rest(rule, p.geometry, rows, tiles * kScoreKeys, lane);
}

}  // namespace

template <class T>
void score_blocks_plain(const ScoreProblem<T>& problem, cudaStream_t stream) {
  if (problem.count == 0) return;
  const auto kernel = score_blocks_plain_kernel<T>;
  const int bytes = problem.group * problem.head_dim * static_cast<int>(sizeof(float));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<dim3(static_cast<unsigned>(problem.count), static_cast<unsigned>(problem.kv_heads)),
           kWarpSize, static_cast<std::size_t>(bytes), stream>>>(problem);
  check_launch("score_blocks_plain_kernel");
}

template void score_blocks_plain(const ScoreProblem<float>&, cudaStream_t);
template void score_blocks_plain(const ScoreProblem<bf16>&, cudaStream_t);

}  // namespace nsa::cuda
