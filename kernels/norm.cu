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
constexpr int kBackwardThreads = 256;
/// Blocks whose shares of dweight are summed afterwards; a number of its own, so that the order of
/// the sum does not depend on the GPU.
constexpr std::int64_t kBackwardBlocks = 528;

/// One block: one row. Reads residual and delta once (the sum again from the cache), writes
/// residual_out and y once; sums in fp32.
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

/// One block: every kBackwardBlocks-th row. Reads dy, residual and dresidual, writes dresidual
/// once; its share of dweight stays in shared memory, each thread at its own columns.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBackwardThreads) norm_backward_kernel(const NormBackward<T> p) {
  extern __shared__ __align__(32) float dweight[];
  constexpr std::int64_t kStep = kBackwardThreads * kWidth;
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
    const float along = block_sum<kBackwardThreads>(dot) / static_cast<float>(p.dim) * rstd * rstd;
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
  const std::int64_t blocks = std::min(rows, kBackwardBlocks);
  const std::int64_t shared = dim * static_cast<std::int64_t>(sizeof(float));
  Scratch::Frame frame(scratch_);
  auto* partials = frame.take<float>(blocks * dim);
  with_device_type(op.residual.dtype(), [&]<class T>() {
    const NormBackward<T> problem = {.dresidual = elements<T>(op.dresidual),
                                     .partials = partials,
                                     .dy = elements<T>(op.dy),
                                     .residual = elements<T>(op.residual),
                                     .rstd = elements<float>(op.rstd),
                                     .weight = elements<T>(op.weight),
                                     .rows = rows,
                                     .dim = dim,
                                     .accumulate = op.accumulate};
    with_width<T>(dim, [&]<int kWidth>() {
      const auto kernel = norm_backward_kernel<T, kWidth>;
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared)));
      kernel<<<static_cast<unsigned>(blocks), kBackwardThreads, static_cast<std::size_t>(shared),
               stream_>>>(problem);
      check_launch("norm_backward_kernel");
    });
  });
  add_column_sums(elements<float>(op.dweight), partials, blocks, dim, stream_);
}

}  // namespace nsa::cuda
