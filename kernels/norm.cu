// RMSNorm with the addition to the residual stream before it.

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/column_sum.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kForwardThreads = 128;
/// Threads of all blocks whose shares of dweight are summed afterwards; a number of its own, so
/// that the order of the sum does not depend on the GPU.
constexpr std::int64_t kBackwardThreads = 132 * 1536;
constexpr int kMostThreads = 512;
constexpr int kFewThreads = 256;  ///< with so few, more blocks stand side by side
constexpr int kWideThreads = 256;

/// One block: one row. Reads residual and delta once (the sum again from the cache), writes
/// residual_out and y once: 4 * sizeof(T) bytes an element, 2 without delta. Sums in fp32; any dim.
template <class T, int kWidth>
__global__ void __launch_bounds__(kForwardThreads)
    norm_forward_kernel(T* y, float* rstd, T* residual_out, const T* residual, const T* delta,
                        const T* weight, std::int64_t dim, double eps) {
  const std::int64_t row = blockIdx.x;
  const T* x = residual + row * dim;
  float squares = 0.0F;
  for (std::int64_t c = threadIdx.x * kWidth; c < dim; c += kForwardThreads * kWidth) {
    float value[kWidth];
    load(x + c, value);
    if (delta != nullptr) {
      float added[kWidth];
      load(delta + row * dim + c, added);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) value[i] = to_float(from_float<T>(value[i] + added[i]));
      store(residual_out + row * dim + c, value);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) squares = fmaf(value[i], value[i], squares);
  }
  squares = block_sum<kForwardThreads>(squares);
  const auto scale =
      static_cast<float>(1.0 / sqrt(static_cast<double>(squares) / static_cast<double>(dim) + eps));
  if (threadIdx.x == 0) rstd[row] = scale;
  // Each thread reads again what it wrote itself.
  if (delta != nullptr) x = residual_out + row * dim;
  for (std::int64_t c = threadIdx.x * kWidth; c < dim; c += kForwardThreads * kWidth) {
    float value[kWidth];
    float factor[kWidth];
    load(x + c, value);
    load(weight + c, factor);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] *= scale * factor[i];
    store(y + row * dim + c, value);
  }
}

template <class T>
struct NormBackward {
  T* dresidual;
  float* partials;  ///< [blocks, dim]
  const T* dy;
  const T* residual;
  const float* rstd;
  const T* weight;
  std::int64_t rows;
  std::int64_t dim;
  bool accumulate;
};

/// What a thread holds of a row, as it is stored: its pack of gradient, input and the gradient that
/// is added to.
template <class T, int kWidth>
struct NormPack {
  Pack<T, kWidth> dy;
  Pack<T, kWidth> x;
  Pack<T, kWidth> sum;
  float rstd;
};

template <class T, int kWidth>
__device__ __forceinline__ NormPack<T, kWidth> load_pack(const NormBackward<T>& p, std::int64_t row,
                                                         std::int64_t column) {
  NormPack<T, kWidth> pack = {};
  if (row >= p.rows || column >= p.dim) return pack;
  const std::int64_t at = row * p.dim + column;
  pack.dy = *reinterpret_cast<const Pack<T, kWidth>*>(p.dy + at);
  pack.x = *reinterpret_cast<const Pack<T, kWidth>*>(p.residual + at);
  if (p.accumulate) pack.sum = *reinterpret_cast<const Pack<T, kWidth>*>(p.dresidual + at);
  pack.rstd = p.rstd[row];
  return pack;
}

/// The sum over a block of any number of whole warps, in every thread. May be called twice in a row
/// where the caller alternates between two `parts`.
__device__ __forceinline__ float sum_of_warps(float value, float* parts) {
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float total = parts[0];
  for (std::uint32_t warp = 1; warp < blockDim.x / kWarpSize; ++warp) total += parts[warp];
  return total;
}

/// One block: every gridDim.x-th row, each thread one pack of columns, kept in registers; the next
/// row is under way while one is summed. Reads dy, residual and dresidual, writes dresidual, once:
/// 4 * sizeof(T) bytes an element, 3 where it is overwritten. Its share of dweight stays in
/// registers; one partial sum a block. fp32. dim / kWidth is at most the block's threads, and those
/// are at most kThreads.
template <class T, int kWidth, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_kernel(const NormBackward<T> p) {
  __shared__ float parts[2][kThreads / kWarpSize];
  const std::int64_t c = threadIdx.x * kWidth;
  float weight[kWidth] = {};
  float share[kWidth] = {};
  if (c < p.dim) load(p.weight + c, weight);
  const float per_column = 1.0F / static_cast<float>(p.dim);
  NormPack<T, kWidth> next = load_pack<T, kWidth>(p, blockIdx.x, c);
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const NormPack<T, kWidth> now = next;
    next = load_pack<T, kWidth>(p, row + gridDim.x, c);
    float dot = 0.0F;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float dy = to_float(now.dy.at[i]);
      const float x = to_float(now.x.at[i]);
      dot = fmaf(dy * weight[i], x, dot);
      share[i] = fmaf(dy * x, now.rstd, share[i]);
    }
    const float along = sum_of_warps(dot, parts[turn]) * per_column * now.rstd * now.rstd;
    turn = 1 - turn;
    if (c >= p.dim) continue;
    float dx[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      dx[i] = to_float(now.sum.at[i]) +
              now.rstd * (to_float(now.dy.at[i]) * weight[i] - to_float(now.x.at[i]) * along);
    }
    store(p.dresidual + row * p.dim + c, dx);
  }
  if (c >= p.dim) return;
  float* partial = p.partials + blockIdx.x * p.dim + c;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) partial[i] = share[i];
}

/// The same for rows that 512 threads cannot hold. One block: every gridDim.x-th row. Reads dy
/// and residual twice, dresidual once, writes dresidual once; its share of dweight stays in shared
/// memory, each thread at its own columns. dim is at most 56,000.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWideThreads) norm_backward_wide_kernel(const NormBackward<T> p) {
  extern __shared__ __align__(32) float dweight[];
  constexpr std::int64_t kStep = kWideThreads * kWidth;
  constexpr float zero[kWidth] = {};
  for (std::int64_t c = threadIdx.x * kWidth; c < p.dim; c += kStep) {
    store(dweight + c, zero);
  }
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* dy = p.dy + row * p.dim;
    const T* x = p.residual + row * p.dim;
    const float rstd = p.rstd[row];
    float dot = 0.0F;
    for (std::int64_t c = threadIdx.x * kWidth; c < p.dim; c += kStep) {
      float gradient[kWidth];
      float value[kWidth];
      float factor[kWidth];
      float share[kWidth];
      load(dy + c, gradient);
      load(x + c, value);
      load(p.weight + c, factor);
      load(dweight + c, share);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dot = fmaf(gradient[i] * factor[i], value[i], dot);
        share[i] = fmaf(gradient[i] * value[i], rstd, share[i]);
      }
      store(dweight + c, share);
    }
    const float along = block_sum<kWideThreads>(dot) / static_cast<float>(p.dim) * rstd * rstd;
    T* dx = p.dresidual + row * p.dim;
    for (std::int64_t c = threadIdx.x * kWidth; c < p.dim; c += kStep) {
      float gradient[kWidth];
      float value[kWidth];
      float factor[kWidth];
      float sum[kWidth] = {};
      load(dy + c, gradient);
      load(x + c, value);
      load(p.weight + c, factor);
      if (p.accumulate) load(dx + c, sum);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum[i] += rstd * (gradient[i] * factor[i] - value[i] * along);
      }
      store(dx + c, sum);
    }
  }
  float* partial = p.partials + blockIdx.x * p.dim;
  for (std::int64_t c = threadIdx.x * kWidth; c < p.dim; c += kStep) {
    float share[kWidth];
    load(dweight + c, share);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) partial[c + i] = share[i];
  }
}

/// Blocks of `threads` that the rows are shared among.
std::int64_t most_blocks(std::int64_t threads) {
  return std::clamp<std::int64_t>(kBackwardThreads / threads, 132, 1584);
}

}  // namespace

void CudaOps::apply(const ResidualNormForward& op) {
  const std::int64_t rows = op.y.dim(0);
  const std::int64_t dim = op.y.dim(1);
  if (rows == 0) return;
  with_device_type(op.y.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      norm_forward_kernel<T, kWidth><<<static_cast<unsigned>(rows), kForwardThreads, 0, stream_>>>(
          elements<T>(op.y), elements<float>(op.rstd), elements<T>(op.residual_out),
          elements<T>(op.residual), elements<T>(op.delta), elements<T>(op.weight), dim, op.eps);
      check_launch("norm_forward_kernel");
    });
  });
}

void CudaOps::apply(const ResidualNormBackward& op) {
  const std::int64_t rows = op.residual.dim(0);
  const std::int64_t dim = op.residual.dim(1);
  if (rows == 0) return;
  Scratch::Frame frame(scratch_);
  with_device_type(op.residual.dtype(), [&]<class T>() {
    NormBackward<T> problem = {.dresidual = elements<T>(op.dresidual),
                               .partials = nullptr,
                               .dy = elements<T>(op.dy),
                               .residual = elements<T>(op.residual),
                               .rstd = elements<float>(op.rstd),
                               .weight = elements<T>(op.weight),
                               .rows = rows,
                               .dim = dim,
                               .accumulate = op.accumulate};
    with_width<T>(dim, [&]<int kWidth>() {
      const std::int64_t packs = dim / kWidth;
      const bool wide = packs > kMostThreads;
      const std::int64_t threads =
          wide ? kWideThreads : (packs + kWarpSize - 1) / kWarpSize * kWarpSize;
      const std::int64_t blocks = std::min(rows, most_blocks(threads));
      problem.partials = frame.take<float>(blocks * dim);
      const std::int64_t shared = wide ? dim * static_cast<std::int64_t>(sizeof(float)) : 0;
      const auto kernel = wide                     ? norm_backward_wide_kernel<T, kWidth>
                          : threads <= kFewThreads ? norm_backward_kernel<T, kWidth, kFewThreads>
                                                   : norm_backward_kernel<T, kWidth, kMostThreads>;
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared)));
      kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
               static_cast<std::size_t>(shared), stream_>>>(problem);
      check_launch("norm_backward_kernel");
      add_column_sums(elements<float>(op.dweight), problem.partials, blocks, dim, stream_);
    });
  });
}

}  // namespace nsa::cuda
