// Range attention in fp32 without tensor cores: what tests and golden files run on. A warp per row,
// a lane per key (or per query, in dk and dv) for the products, a lane per column for the sums.

#include "kernels/attention/range_problem.cuh"
#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"

namespace nsa::cuda {
namespace {

constexpr int kMostDim = 256;
constexpr int kColumns = kMostDim / kWarpSize;  ///< of a row, per lane
constexpr int kWarps = 4;
constexpr unsigned kAll = 0xFFFFFFFFU;

/// Lane's columns of a row times `factor`, added to `sum`.
__device__ __forceinline__ void add_row(float (&sum)[kColumns], float factor, const float* row,
                                        std::int32_t dim, int lane) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = lane + i * kWarpSize;
    if (column < dim) sum[i] = fmaf(factor, row[column], sum[i]);
  }
}

__device__ __forceinline__ void store_row(float* to, const float (&sum)[kColumns], float factor,
                                          std::int32_t dim, int lane, bool add = false) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = lane + i * kWarpSize;
    if (column < dim) to[column] = sum[i] * factor + (add ? to[column] : 0.0F);
  }
}

/// Four partial sums keep the error of long rows down.
__device__ __forceinline__ float dot(const float* a, const float* b, std::int32_t dim) {
  float sums[4] = {};
  std::int32_t i = 0;
  for (; i + 4 <= dim; i += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] = fmaf(a[i + j], b[i + j], sums[j]);
  }
  for (; i < dim; ++i) sums[0] = fmaf(a[i], b[i], sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The row (token, head) of a warp; its rows of q and dout in shared memory are the warp's own.
struct WarpRow {
  std::int64_t index;
  std::int32_t kv_head;
  int2 keys;

  __device__ WarpRow(const RangeProblem<float>& p, std::int64_t row)
      : index(row),
        kv_head(static_cast<std::int32_t>(row % p.heads) / p.group),
        keys(p.rule.keys_of(static_cast<std::int32_t>(row / p.heads))) {}
  __device__ std::int64_t key_row(const RangeProblem<float>& p, std::int32_t key) const {
    return static_cast<std::int64_t>(key) * p.kv_heads + kv_head;
  }
};

__device__ __forceinline__ void copy_row(float* to, const float* from, std::int32_t dim, int lane) {
  for (int column = lane; column < dim; column += kWarpSize) to[column] = from[column];
  __syncwarp();
}

/// One warp: one row (token, head). Reads q, k, v; writes out (unless null) and lse. Softmax with a
/// running maximum. Head dims up to kMostDim.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    range_forward_plain_kernel(const RangeProblem<float> p) {
  __shared__ float queries[kWarps][kMostDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (at >= static_cast<std::int64_t>(p.tokens) * p.heads) return;
  const WarpRow row(p, at);
  copy_row(queries[warp], p.q + at * p.head_dim, p.head_dim, lane);
  float most = -INFINITY;
  float total = 0.0F;
  float out[kColumns] = {};
  for (std::int32_t first = row.keys.x; first < row.keys.y; first += kWarpSize) {
    const std::int32_t count = min(row.keys.y - first, kWarpSize);
    float score = -INFINITY;
    if (lane < count) {
      score =
          p.scale * dot(queries[warp], p.k + row.key_row(p, first + lane) * p.head_dim, p.head_dim);
    }
    const float grown = fmaxf(most, warp_max(score));
    const float shrink = expf(most - grown);
    most = grown;
    const float probability = expf(score - most);
    total = total * shrink + warp_sum(probability);
    if (p.out == nullptr) continue;
#pragma unroll
    for (float& column : out) column *= shrink;
    for (std::int32_t i = 0; i < count; ++i) {
      add_row(out, __shfl_sync(kAll, probability, i), p.v + row.key_row(p, first + i) * p.v_dim,
              p.v_dim, lane);
    }
  }
  if (lane == 0) p.lse[at] = total > 0.0F ? most + logf(total) : -INFINITY;
  if (p.out != nullptr) {
    store_row(p.out + at * p.v_dim, out, total > 0.0F ? 1.0F / total : 0.0F, p.v_dim, lane);
  }
}

/// One warp: one row (token, head). Reads all but out; writes dq, or adds to it.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    range_queries_plain_kernel(const RangeProblem<float> p) {
  __shared__ float queries[kWarps][kMostDim];
  __shared__ float upstream[kWarps][kMostDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (at >= static_cast<std::int64_t>(p.tokens) * p.heads) return;
  const WarpRow row(p, at);
  copy_row(queries[warp], p.q + at * p.head_dim, p.head_dim, lane);
  copy_row(upstream[warp], p.dout + at * p.v_dim, p.v_dim, lane);
  const float lse = p.lse[at];
  const float gate = p.gates == nullptr ? 1.0F : p.gates[at * p.stat_stride];
  const float delta = p.deltas[at * p.stat_stride];
  float dq[kColumns] = {};
  for (std::int32_t first = row.keys.x; first < row.keys.y; first += kWarpSize) {
    const std::int32_t count = min(row.keys.y - first, kWarpSize);
    float ds = 0.0F;
    if (lane < count) {
      const std::int64_t key = row.key_row(p, first + lane);
      const float score = dot(queries[warp], p.k + key * p.head_dim, p.head_dim);
      const float product = dot(upstream[warp], p.v + key * p.v_dim, p.v_dim);
      ds = expf(p.scale * score - lse) * (gate * product - delta);
    }
    for (std::int32_t i = 0; i < count; ++i) {
      add_row(dq, __shfl_sync(kAll, ds, i), p.k + row.key_row(p, first + i) * p.head_dim,
              p.head_dim, lane);
    }
  }
  store_row(p.dq + at * p.head_dim, dq, p.scale, p.head_dim, lane, p.accumulate_dq);
}

/// One warp: one key of one KV head; a lane per row (token, head of the group) that sees it. Reads
/// all but out; writes dk and dv.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    range_keys_plain_kernel(const RangeProblem<float> p) {
  __shared__ float keys[kWarps][kMostDim];
  __shared__ float values[kWarps][kMostDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (at >= static_cast<std::int64_t>(p.keys) * p.kv_heads) return;
  const auto kv_head = static_cast<std::int32_t>(at % p.kv_heads);
  copy_row(keys[warp], p.k + at * p.head_dim, p.head_dim, lane);
  copy_row(values[warp], p.v + at * p.v_dim, p.v_dim, lane);
  const int2 tokens = p.rule.tokens_of(static_cast<std::int32_t>(at / p.kv_heads));
  const auto row_of = [&](std::int32_t row) {
    return static_cast<std::int64_t>(row / p.group) * p.heads + kv_head * p.group + row % p.group;
  };
  float dk[kColumns] = {};
  float dv[kColumns] = {};
  for (std::int32_t first = tokens.x * p.group; first < tokens.y * p.group; first += kWarpSize) {
    const std::int32_t count = min(tokens.y * p.group - first, kWarpSize);
    float probability = 0.0F;
    float ds = 0.0F;
    if (lane < count) {
      const std::int64_t row = row_of(first + lane);
      const float score = dot(keys[warp], p.q + row * p.head_dim, p.head_dim);
      const float product = dot(values[warp], p.dout + row * p.v_dim, p.v_dim);
      const float gate = p.gates == nullptr ? 1.0F : p.gates[row * p.stat_stride];
      probability = expf(p.scale * score - p.lse[row]);
      ds = probability * (gate * product - p.deltas[row * p.stat_stride]);
      probability *= gate;
    }
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int64_t row = row_of(first + i);
      add_row(dk, __shfl_sync(kAll, ds, i), p.q + row * p.head_dim, p.head_dim, lane);
      add_row(dv, __shfl_sync(kAll, probability, i), p.dout + row * p.v_dim, p.v_dim, lane);
    }
  }
  store_row(p.dk + at * p.head_dim, dk, p.scale, p.head_dim, lane);
  store_row(p.dv + at * p.v_dim, dv, 1.0F, p.v_dim, lane);
}

unsigned blocks_of(std::int64_t rows) {
  return static_cast<unsigned>((rows + kWarps - 1) / kWarps);
}

}  // namespace

void range_forward_plain(const RangeProblem<float>& problem, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(problem.tokens) * problem.heads;
  range_forward_plain_kernel<<<blocks_of(rows), kWarps * kWarpSize, 0, stream>>>(problem);
  check_launch("range_forward_plain_kernel");
}

void range_backward_plain(const RangeProblem<float>& problem, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(problem.tokens) * problem.heads;
  range_queries_plain_kernel<<<blocks_of(rows), kWarps * kWarpSize, 0, stream>>>(problem);
  check_launch("range_queries_plain_kernel");
  if (problem.keys == 0) return;
  const std::int64_t keys = static_cast<std::int64_t>(problem.keys) * problem.kv_heads;
  range_keys_plain_kernel<<<blocks_of(keys), kWarps * kWarpSize, 0, stream>>>(problem);
  check_launch("range_keys_plain_kernel");
}

}  // namespace nsa::cuda
