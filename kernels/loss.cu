// LM head and cross-entropy, a chunk of rows at a time.

#include <algorithm>

#include "core/batch.h"
#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 512;

/// What one row adds to the loss.
struct RowLoss {
  double ce;
  double z;
};

template <class T>
struct LossRows {
  T* logits;                    ///< [rows, vocabulary]; become their gradient where wanted
  const std::int32_t* targets;  ///< [rows]
  RowLoss* losses;              ///< [rows]
  float* token_loss;            ///< [rows], or null
  std::int64_t vocabulary;
  double z_loss;
  double grad_scale;
  bool gradients;
};

/// The largest of some logits and the sum of exp(logit - largest).
struct Softmax {
  float most;
  float sum;
};

/// One block: one row of logits. Reads them twice (the second time from L2), writes the gradient in
/// their place: 2 * sizeof(T) bytes an element in all, sizeof(T) where no gradient is wanted.
/// Softmax in fp32, the loss in fp64; any vocabulary.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) loss_kernel(const LossRows<T> p) {
  const std::int64_t row = blockIdx.x;
  T* logits = p.logits + row * p.vocabulary;
  const std::int32_t target = p.targets[row];
  constexpr std::int64_t kStep = kThreads * kWidth;
  const std::int64_t first = threadIdx.x * kWidth;
  if (target == kIgnoredTarget) {
    if (threadIdx.x == 0) {
      p.losses[row] = {0, 0};
      if (p.token_loss != nullptr) p.token_loss[row] = 0.0F;
    }
    constexpr float zero[kWidth] = {};
    for (std::int64_t c = first; p.gradients && c < p.vocabulary; c += kStep) {
      store(logits + c, zero);
    }
    return;
  }
  Softmax own = {-INFINITY, 0.0F};
  for (std::int64_t c = first; c < p.vocabulary; c += kStep) {
    float value[kWidth];
    load(logits + c, value);
    float most = own.most;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) most = fmaxf(most, value[i]);
    float sum = own.most == -INFINITY ? 0.0F : own.sum * expf(own.most - most);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += expf(value[i] - most);
    own = {most, sum};
  }
  const float most = block_max<kThreads>(own.most);
  const float share = own.most == -INFINITY ? 0.0F : own.sum * expf(own.most - most);
  const auto sum = static_cast<double>(block_sum<kThreads>(share));
  const double lse = static_cast<double>(most) + log(sum);
  if (threadIdx.x == 0) {
    const double ce = lse - static_cast<double>(to_float(logits[target]));
    p.losses[row] = {ce, p.z_loss * lse * lse};
    if (p.token_loss != nullptr) p.token_loss[row] = static_cast<float>(ce);
  }
  if (!p.gradients) return;
  __syncthreads();  // the target's logit was read before it is overwritten
  const auto scale = static_cast<float>(p.grad_scale * (1.0 + 2.0 * p.z_loss * lse) / sum);
  const auto at_target = static_cast<float>(p.grad_scale);
  for (std::int64_t c = first; c < p.vocabulary; c += kStep) {
    float value[kWidth];
    load(logits + c, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value[i] = scale * expf(value[i] - most) - (c + i == target ? at_target : 0.0F);
    }
    store(logits + c, value);
  }
}

/// One block in all: adds the rows' losses in an order that depends on their number alone. Reads 16
/// bytes a row; fp64.
__global__ void __launch_bounds__(kThreads)
    loss_sum_kernel(double* loss, const RowLoss* losses, std::int64_t rows) {
  double ce = 0;
  double z = 0;
#pragma unroll 8
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    ce += losses[row].ce;
    z += losses[row].z;
  }
  ce = block_sum<kThreads>(ce);
  z = block_sum<kThreads>(z);
  if (threadIdx.x != 0) return;
  loss[0] += ce;
  loss[1] += z;
}

}  // namespace

void CudaOps::apply(const LinearCrossEntropy& op) {
  const std::int64_t rows = op.x.dim(0);
  const std::int64_t vocabulary = op.weight.dim(0);
  if (rows == 0) return;
  Scratch::Frame frame(scratch_);
  auto* losses = frame.take<RowLoss>(rows);
  const std::int64_t chunk = op.logits.dim(0);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const Tensor logits = op.logits.slice(0, end - begin);
    const Tensor x = op.x.slice(begin, end);
    matmul_.run({.out = logits, .a = x, .b = op.weight, .transpose_b = true});
    with_device_type(op.x.dtype(), [&]<class T>() {
      const LossRows<T> problem = {
          .logits = elements<T>(logits),
          .targets = op.targets.as<std::int32_t>() + begin,
          .losses = losses + begin,
          .token_loss = op.token_loss.defined() ? elements<float>(op.token_loss) + begin : nullptr,
          .vocabulary = vocabulary,
          .z_loss = op.z_loss,
          .grad_scale = op.grad_scale,
          .gradients = op.dx.defined()};
      with_width<T>(vocabulary, [&]<int kWidth>() {
        loss_kernel<T, kWidth>
            <<<static_cast<unsigned>(end - begin), kThreads, 0, stream_>>>(problem);
        check_launch("loss_kernel");
      });
    });
    if (!op.dx.defined()) continue;
    matmul_.run({.out = op.dx.slice(begin, end), .a = logits, .b = op.weight});
    matmul_.run({.out = op.dweight, .a = logits, .b = x, .transpose_a = true, .accumulate = true});
  }
  loss_sum_kernel<<<1, kThreads, 0, stream_>>>(op.loss.as<double>(), losses, rows);
  check_launch("loss_sum_kernel");
}

}  // namespace nsa::cuda
