// The gates that mix the three branches.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/column_sum.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBranches = 3;

template <class T>
struct Branches {
  T* at[kBranches];
};

template <class T>
Branches<T> branches_of(const std::array<Tensor, kBranches>& tensors) {
  return {{elements<T>(tensors[0]), elements<T>(tensors[1]), elements<T>(tensors[2])}};
}

/// One thread: a pack of one (token, head). Reads each branch, writes out, once: 4 * sizeof(T)
/// bytes an element; the three gates are computed by every thread of a row and written by its
/// first. fp32 arithmetic; any extents.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    gate_combine_kernel(T* out, float* gates, const Branches<T> branches, const T* logits,
                        const T* bias, std::int64_t rows, std::int64_t heads, std::int64_t packs) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * packs) return;
  const std::int64_t row = at / packs;
  const std::int64_t head = row % heads;
  float sum[kWidth] = {};
#pragma unroll
  for (int b = 0; b < kBranches; ++b) {
    const float logit =
        to_float(logits[row * kBranches + b]) + to_float(bias[head * kBranches + b]);
    const float gate = 1.0F / (1.0F + expf(-logit));
    if (at % packs == 0) gates[row * kBranches + b] = gate;
    if (branches.at[b] == nullptr) continue;
    float value[kWidth];
    load(branches.at[b] + at * kWidth, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = fmaf(gate, value[i], sum[i]);
  }
  store(out + at * kWidth, sum);
}

/// `lanes` threads (a power of two up to 32): one (token, head). Reads dout and the branches once,
/// 4
/// * sizeof(T) bytes an element; writes three deltas and three gradients. fp32, summed in an order
/// that depends on the extents alone; any extents.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    gate_backward_kernel(T* dlogits, float* deltas, const T* dout, const Branches<T> branches,
                         const float* gates, std::int64_t rows, std::int64_t packs, int lanes) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float dot[kBranches] = {};
  if (row < rows) {
    for (std::int64_t pack = lane; pack < packs; pack += lanes) {
      const std::int64_t offset = (row * packs + pack) * kWidth;
      float gradient[kWidth];
      load(dout + offset, gradient);
#pragma unroll
      for (int b = 0; b < kBranches; ++b) {
        if (branches.at[b] == nullptr) continue;
        float value[kWidth];
        load(branches.at[b] + offset, value);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) dot[b] = fmaf(gradient[i], value[i], dot[b]);
      }
    }
  }
  for (int other = lanes / 2; other > 0; other /= 2) {
#pragma unroll
    for (int b = 0; b < kBranches; ++b) dot[b] += __shfl_xor_sync(0xFFFFFFFFU, dot[b], other);
  }
  if (row >= rows || lane != 0) return;
#pragma unroll
  for (int b = 0; b < kBranches; ++b) {
    const float delta = gates[row * kBranches + b] * dot[b];
    deltas[row * kBranches + b] = delta;
    dlogits[row * kBranches + b] = from_float<T>(delta * (1.0F - gates[row * kBranches + b]));
  }
}

constexpr int kBiasColumns = 32;
constexpr int kBiasLanes = 8;
constexpr std::int64_t kBiasTokens = 512;

/// One block: 32 of the 3 * heads columns, 512 tokens. The gradient of a logit before it is
/// rounded is delta * (1 - gate). Reads both once, 8 bytes an element, writes one partial sum a
/// column; fp32; up to 65,535 * 512 tokens.
__global__ void __launch_bounds__(kBiasColumns* kBiasLanes)
    gate_bias_kernel(float* partials, const float* deltas, const float* gates, std::int64_t tokens,
                     std::int64_t columns) {
  __shared__ float sums[kBiasLanes][kBiasColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kBiasColumns + threadIdx.x;
  const std::int64_t begin = blockIdx.y * kBiasTokens;
  const std::int64_t end = begin + kBiasTokens < tokens ? begin + kBiasTokens : tokens;
  float sum = 0.0F;
  if (column < columns) {
    for (std::int64_t token = begin + threadIdx.y; token < end; token += kBiasLanes) {
      const std::int64_t at = token * columns + column;
      sum = fmaf(deltas[at], 1.0F - gates[at], sum);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = sums[0][threadIdx.x];
  for (int lane = 1; lane < kBiasLanes; ++lane) total += sums[lane][threadIdx.x];
  partials[blockIdx.y * columns + column] = total;
}

unsigned blocks_of(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

void CudaOps::apply(const GateCombineForward& op) {
  const std::int64_t heads = op.out.dim(1);
  const std::int64_t rows = op.out.dim(0) * heads;
  const std::int64_t dim = op.out.dim(2);
  if (rows == 0) return;
  with_device_type(op.out.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      const std::int64_t packs = dim / kWidth;
      gate_combine_kernel<T, kWidth><<<blocks_of(rows * packs), kThreads, 0, stream_>>>(
          elements<T>(op.out), elements<float>(op.gates), branches_of<T>(op.branches),
          elements<T>(op.logits), elements<T>(op.bias), rows, heads, packs);
      check_launch("gate_combine_kernel");
    });
  });
}

void CudaOps::apply(const GateBackward& op) {
  const std::int64_t tokens = op.dout.dim(0);
  const std::int64_t rows = tokens * op.dout.dim(1);
  const std::int64_t dim = op.dout.dim(2);
  const std::int64_t columns = op.dbias.dim(0);
  if (rows == 0) return;
  with_device_type(op.dout.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      const std::int64_t packs = dim / kWidth;
      int lanes = 1;
      while (lanes < kWarpSize && lanes < packs) lanes *= 2;
      gate_backward_kernel<T, kWidth><<<blocks_of(rows * lanes), kThreads, 0, stream_>>>(
          elements<T>(op.dlogits), elements<float>(op.deltas), elements<T>(op.dout),
          branches_of<T>(op.branches), elements<float>(op.gates), rows, packs, lanes);
      check_launch("gate_backward_kernel");
    });
  });
  const std::int64_t chunks = (tokens + kBiasTokens - 1) / kBiasTokens;
  Scratch::Frame frame(scratch_);
  auto* partials = frame.take<float>(chunks * columns);
  const dim3 grid(static_cast<unsigned>((columns + kBiasColumns - 1) / kBiasColumns),
                  static_cast<unsigned>(chunks));
  gate_bias_kernel<<<grid, dim3(kBiasColumns, kBiasLanes), 0, stream_>>>(
      partials, elements<float>(op.deltas), elements<float>(op.gates), tokens, columns);
  check_launch("gate_bias_kernel");
  add_column_sums(elements<float>(op.dbias), partials, chunks, columns, stream_);
}

}  // namespace nsa::cuda
