// Selected attention without tensor cores: fp32 arithmetic for fp32 storage, and for the bf16
// shapes that the tensor-core kernels do not take.

#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/nsa/selected_kernels.h"

namespace nsa::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kMostDim = 256;
constexpr int kPieces = kMostDim / kWarpSize;

/// The row (token, head) of a warp.
struct WarpRow {
  std::int32_t token, kv_head;
  std::int64_t row;
  bool real;

  template <class T>
  __device__ explicit WarpRow(const SelectedProblem<T>& p) {
    row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
    const std::int64_t heads = static_cast<std::int64_t>(p.kv_heads) * p.group;
    token = static_cast<std::int32_t>(row / heads);
    kv_head = static_cast<std::int32_t>(row % heads / p.group);
    real = token < p.tokens();
  }
};

/// A row of x [rows, dim] into shared memory, for one warp.
template <class T>
__device__ void stage_row(float* to, const T* x, std::int64_t row, std::int32_t dim, int lane) {
  for (std::int32_t c = lane; c < dim; c += kWarpSize) to[c] = to_float(x[row * dim + c]);
}

/// <staged row, row of x [rows, dim]>.
template <class T>
__device__ float dot_row(const float* staged, const T* x, std::int64_t row, std::int32_t dim) {
  const T* other = x + row * dim;
  float sum = 0.0F;
  for (std::int32_t c = 0; c < dim; ++c) sum = fmaf(staged[c], to_float(other[c]), sum);
  return sum;
}

/// sums += the lanes' weights times `count` rows of x [tokens, kv_heads, dim] from `key`; lane c
/// holds channels c, c + 32, ...
template <class T>
__device__ void add_keys(float (&sums)[kPieces], float weight, const T* x,
                         const SelectedProblem<T>& p, std::int32_t key, std::int32_t count,
                         std::int32_t kv_head, std::int32_t dim, int lane) {
  for (std::int32_t i = 0; i < count; ++i) {
    const float w = __shfl_sync(0xFFFFFFFFU, weight, i);
    const T* row = x + p.pair(key + i, kv_head) * dim;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const int channel = lane + c * kWarpSize;
      if (channel < dim) sums[c] = fmaf(w, to_float(row[channel]), sums[c]);
    }
  }
}

/// Calls body(first key, count) for at most 32 visible keys at a time, ascending.
template <class T, class Body>
__device__ void for_each_keys(const SelectedProblem<T>& p, const WarpRow& at, const Body& body) {
  const std::int32_t* blocks = p.blocks + p.pair(at.token, at.kv_head) * p.top_n;
  const std::int32_t origin = p.documents.bounds[p.documents.of_token[at.token]];
  for (std::int32_t slot = 0; slot < p.top_n && blocks[slot] >= 0; ++slot) {
    const std::int32_t begin = origin + blocks[slot] * p.select_block;
    const std::int32_t end = min(begin + p.select_block, at.token + 1);
    for (std::int32_t key = begin; key < end; key += kWarpSize) {
      body(key, min(end - key, kWarpSize));
    }
  }
}

/// One warp: one row (token, head) against its selected keys, a key a lane. Reads q, k, v, blocks;
/// writes out and lse. Softmax with a running maximum, all in fp32. Head dims up to kMostDim.
template <class T>
__global__ void __launch_bounds__(kThreads)
    selected_forward_plain_kernel(const SelectedProblem<T> p) {
  __shared__ float staged[kWarps][kMostDim];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* q = staged[threadIdx.x / kWarpSize];
  const WarpRow at(p);
  if (!at.real) return;
  stage_row(q, p.q, at.row, p.head_dim, lane);
  __syncwarp();
  float most = -INFINITY;
  float total = 0.0F;
  float out[kPieces] = {};
  for_each_keys(p, at, [&](std::int32_t key, std::int32_t count) {
    const bool seen = lane < count;
    const float score =
        seen ? p.scale * dot_row(q, p.k, p.pair(key + lane, at.kv_head), p.head_dim) : -INFINITY;
    const float grown = fmaxf(most, warp_max(score));
    const float shrink = expf(most - grown);  // 0 the first time
    const float probability = expf(score - grown);
    total = total * shrink + warp_sum(probability);
    most = grown;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) out[c] *= shrink;
    add_keys(out, probability, p.v, p, key, count, at.kv_head, p.v_dim, lane);
  });
  const float inverse = total > 0.0F ? 1.0F / total : 0.0F;
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const int channel = lane + c * kWarpSize;
    if (channel < p.v_dim) p.out[at.row * p.v_dim + channel] = from_float<T>(out[c] * inverse);
  }
  if (lane == 0) p.lse[at.row] = total > 0.0F ? most + logf(total) : -INFINITY;
}

/// One warp: dq of one row (token, head), a key a lane. Reads q, k, v, dout, lse, gates, deltas,
/// blocks; writes dq or adds to it. All in fp32. Head dims up to kMostDim.
template <class T>
__global__ void __launch_bounds__(kThreads) selected_dq_plain_kernel(const SelectedProblem<T> p) {
  __shared__ float staged[kWarps][2 * kMostDim];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* q = staged[threadIdx.x / kWarpSize];
  float* dout = q + kMostDim;
  const WarpRow at(p);
  if (!at.real) return;
  stage_row(q, p.q, at.row, p.head_dim, lane);
  stage_row(dout, p.dout, at.row, p.v_dim, lane);
  __syncwarp();
  const float lse = p.lse[at.row];
  const float gate = p.gates[at.row * 3];
  const float delta = p.deltas[at.row * 3];
  float dq[kPieces] = {};
  for_each_keys(p, at, [&](std::int32_t key, std::int32_t count) {
    float ds = 0.0F;
    if (lane < count) {
      const std::int64_t row = p.pair(key + lane, at.kv_head);
      const float probability = expf(p.scale * dot_row(q, p.k, row, p.head_dim) - lse);
      ds = probability * (gate * dot_row(dout, p.v, row, p.v_dim) - delta);
    }
    add_keys(dq, ds, p.k, p, key, count, at.kv_head, p.head_dim, lane);
  });
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const int channel = lane + c * kWarpSize;
    if (channel >= p.head_dim) continue;
    T* to = p.dq + at.row * p.head_dim + channel;
    *to = from_float<T>((p.accumulate_dq ? to_float(*to) : 0.0F) + p.scale * dq[c]);
  }
}

/// One warp: dk and dv of one key of one KV head over the queries that selected its block, in
/// order. Reads q, k, v, dout, lse, gates, deltas and the lists. All in fp32; every key is written.
/// Head dims up to kMostDim.
template <class T>
__global__ void __launch_bounds__(kThreads)
    selected_dkdv_plain_kernel(const SelectedProblem<T> p, const BlockLists lists) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t pair =
      static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const auto key = static_cast<std::int32_t>(pair / p.kv_heads);
  const auto kv_head = static_cast<std::int32_t>(pair % p.kv_heads);
  if (key >= p.tokens()) return;
  const std::int32_t document = p.documents.of_token[key];
  const std::int32_t origin = p.documents.bounds[document];
  const std::int64_t list =
      kv_head * lists.ids + origin / p.select_block + document + (key - origin) / p.select_block;
  float k[kPieces], v[kPieces];
  float dk[kPieces] = {};
  float dv[kPieces] = {};
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const int channel = lane + c * kWarpSize;
    k[c] = channel < p.head_dim ? to_float(p.k[pair * p.head_dim + channel]) : 0.0F;
    v[c] = channel < p.v_dim ? to_float(p.v[pair * p.v_dim + channel]) : 0.0F;
  }
  for (std::int32_t i = lists.begin[list]; i < lists.begin[list + 1]; ++i) {
    const std::int32_t token = lists.queries[i];
    if (token < key) continue;
    for (std::int32_t head = 0; head < p.group; ++head) {
      const std::int64_t row = p.row(token, kv_head, head);
      float q[kPieces], dout[kPieces];
      float score = 0.0F;
      float dp = 0.0F;
#pragma unroll
      for (int c = 0; c < kPieces; ++c) {
        const int channel = lane + c * kWarpSize;
        q[c] = channel < p.head_dim ? to_float(p.q[row * p.head_dim + channel]) : 0.0F;
        dout[c] = channel < p.v_dim ? to_float(p.dout[row * p.v_dim + channel]) : 0.0F;
        score = fmaf(q[c], k[c], score);
        dp = fmaf(dout[c], v[c], dp);
      }
      const float probability = expf(p.scale * warp_sum(score) - p.lse[row]);
      const float gate = p.gates[row * 3];
      const float ds = probability * (gate * warp_sum(dp) - p.deltas[row * 3]);
#pragma unroll
      for (int c = 0; c < kPieces; ++c) {
        dk[c] = fmaf(ds, q[c], dk[c]);
        dv[c] = fmaf(probability * gate, dout[c], dv[c]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const int channel = lane + c * kWarpSize;
    if (channel < p.head_dim) p.dk[pair * p.head_dim + channel] = from_float<T>(p.scale * dk[c]);
    if (channel < p.v_dim) p.dv[pair * p.v_dim + channel] = from_float<T>(dv[c]);
  }
}

/// Thread blocks for one warp a row.
unsigned grid_of(std::int64_t rows) {
  return static_cast<unsigned>((rows + kWarps - 1) / kWarps);
}

template <class T>
std::int64_t query_rows(const SelectedProblem<T>& problem) {
  return static_cast<std::int64_t>(problem.tokens()) * problem.kv_heads * problem.group;
}

}  // namespace

template <class T>
void selected_forward_plain(const SelectedProblem<T>& problem, cudaStream_t stream) {
  if (problem.tokens() == 0) return;
  selected_forward_plain_kernel<<<grid_of(query_rows(problem)), kThreads, 0, stream>>>(problem);
  check_launch("selected_forward_plain_kernel");
}

template <class T>
void selected_dq_plain(const SelectedProblem<T>& problem, cudaStream_t stream) {
  if (problem.tokens() == 0) return;
  selected_dq_plain_kernel<<<grid_of(query_rows(problem)), kThreads, 0, stream>>>(problem);
  check_launch("selected_dq_plain_kernel");
}

template <class T>
void selected_dkdv_plain(const SelectedProblem<T>& problem, const BlockLists& lists,
                         cudaStream_t stream) {
  const std::int64_t keys = static_cast<std::int64_t>(problem.tokens()) * problem.kv_heads;
  if (keys == 0) return;
  selected_dkdv_plain_kernel<<<grid_of(keys), kThreads, 0, stream>>>(problem, lists);
  check_launch("selected_dkdv_plain_kernel");
}

template void selected_forward_plain(const SelectedProblem<float>&, cudaStream_t);
template void selected_forward_plain(const SelectedProblem<bf16>&, cudaStream_t);
template void selected_dq_plain(const SelectedProblem<float>&, cudaStream_t);
template void selected_dq_plain(const SelectedProblem<bf16>&, cudaStream_t);
template void selected_dkdv_plain(const SelectedProblem<float>&, const BlockLists&, cudaStream_t);
template void selected_dkdv_plain(const SelectedProblem<bf16>&, const BlockLists&, cudaStream_t);

}  // namespace nsa::cuda
