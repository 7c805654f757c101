// SwiGLU on the fused output of gate and up.

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 128;

/// The quotient is off by at most 2 units in the last place, also where exp(-x) is infinite; an
/// exact division would cost as many instructions as all the rest.
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + expf(-x));
}

/// One block: 128 packs of one row. Reads gate and up, writes y, once each: 3 * sizeof(T) bytes an
/// element of y. fp32 arithmetic; up to 65,535 * 128 packs a row.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(T* y, const T* gate_up, std::int64_t ffn) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth;
  if (c >= ffn) return;
  float gate[kWidth];
  float up[kWidth];
  load(gate_up + row * 2 * ffn + c, gate);
  load(gate_up + row * 2 * ffn + ffn + c, up);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) up[i] *= gate[i] * sigmoid(gate[i]);
  store(y + row * ffn + c, up);
}

/// One block: 128 packs of one row. Reads dy, gate and up, writes both gradients, once each: 5 *
/// sizeof(T) bytes an element of dy; they may stand in the place of gate and up, which no other
/// thread reads. fp32 arithmetic; up to 65,535 * 128 packs a row.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* dgate_up, const T* dy, const T* gate_up, std::int64_t ffn) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth;
  if (c >= ffn) return;
  float gate[kWidth];
  float up[kWidth];
  float gradient[kWidth];
  load(gate_up + row * 2 * ffn + c, gate);
  load(gate_up + row * 2 * ffn + ffn + c, up);
  load(dy + row * ffn + c, gradient);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float open = sigmoid(gate[i]);
    const float silu = gate[i] * open;
    const float slope = open + silu * (1.0F - open);
    gate[i] = gradient[i] * up[i] * slope;
    up[i] = gradient[i] * silu;
  }
  store(dgate_up + row * 2 * ffn + c, gate);
  store(dgate_up + row * 2 * ffn + ffn + c, up);
}

dim3 grid_of(std::int64_t rows, std::int64_t ffn, int width) {
  const std::int64_t columns = static_cast<std::int64_t>(kThreads) * width;
  return {static_cast<unsigned>(rows), static_cast<unsigned>((ffn + columns - 1) / columns), 1};
}

}  // namespace

void CudaOps::apply(const SwiGluForward& op) {
  const std::int64_t rows = op.y.dim(0);
  const std::int64_t ffn = op.y.dim(1);
  if (rows == 0 || ffn == 0) return;
  with_device_type(op.y.dtype(), [&]<class T>() {
    with_width<T>(ffn, [&]<int kWidth>() {
      swiglu_forward_kernel<T, kWidth><<<grid_of(rows, ffn, kWidth), kThreads, 0, stream_>>>(
          elements<T>(op.y), elements<T>(op.gate_up), ffn);
      check_launch("swiglu_forward_kernel");
    });
  });
}

void CudaOps::apply(const SwiGluBackward& op) {
  const std::int64_t rows = op.dy.dim(0);
  const std::int64_t ffn = op.dy.dim(1);
  if (rows == 0 || ffn == 0) return;
  with_device_type(op.dy.dtype(), [&]<class T>() {
    with_width<T>(ffn, [&]<int kWidth>() {
      swiglu_backward_kernel<T, kWidth><<<grid_of(rows, ffn, kWidth), kThreads, 0, stream_>>>(
          elements<T>(op.dgate_up), elements<T>(op.dy), elements<T>(op.gate_up), ffn);
      check_launch("swiglu_backward_kernel");
    });
  });
}

}  // namespace nsa::cuda
