// SwiGLU on the fused output of gate and up.

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 128;

/// The quotient is off by at most 2 units in the last place, also where exp(-x) is infinite; an
/// exact division would cost as many instructions as all the rest. For T of 16 bits the exponential
/// is the hardware's own, off by some 2^-22 of itself where that is not lost in the rounding to T.
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + (sizeof(T) == 2 ? __expf(-x) : expf(-x)));
}

/// Where a thread works. Blocks that run side by side share rows: memory is read in long stretches.
struct Place {
  std::int64_t row;
  std::int64_t column;
};

template <int kWidth>
__device__ __forceinline__ Place place_of(unsigned blocks_of_row) {
  const unsigned row = blockIdx.x / blocks_of_row;
  const unsigned piece = blockIdx.x - row * blocks_of_row;
  return {row, (static_cast<std::int64_t>(piece) * kThreads + threadIdx.x) * kWidth};
}

/// One block: 128 packs of one row. Reads gate and up, writes y, once each: 3 * sizeof(T) bytes an
/// element of y. fp32 arithmetic; any extents.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(T* y, const T* gate_up, std::int64_t ffn, unsigned blocks_of_row) {
  const auto [row, c] = place_of<kWidth>(blocks_of_row);
  if (c >= ffn) return;
  float gate[kWidth];
  float up[kWidth];
  load(gate_up + row * 2 * ffn + c, gate);
  load(gate_up + row * 2 * ffn + ffn + c, up);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) up[i] *= gate[i] * sigmoid<T>(gate[i]);
  store(y + row * ffn + c, up);
}

/// One block: 128 packs of one row. Reads dy, gate and up, writes both gradients, once each: 5 *
/// sizeof(T) bytes an element of dy; they may stand in the place of gate and up, which no other
/// thread reads. fp32 arithmetic; any extents.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* dgate_up, const T* dy, const T* gate_up, std::int64_t ffn,
                           unsigned blocks_of_row) {
  const auto [row, c] = place_of<kWidth>(blocks_of_row);
  if (c >= ffn) return;
  float gate[kWidth];
  float up[kWidth];
  float gradient[kWidth];
  load(gate_up + row * 2 * ffn + c, gate);
  load(gate_up + row * 2 * ffn + ffn + c, up);
  load(dy + row * ffn + c, gradient);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float open = sigmoid<T>(gate[i]);
    const float silu = gate[i] * open;
    const float slope = open + silu * (1.0F - open);
    gate[i] = gradient[i] * up[i] * slope;
    up[i] = gradient[i] * silu;
  }
  store(dgate_up + row * 2 * ffn + c, gate);
  store(dgate_up + row * 2 * ffn + ffn + c, up);
}

/// Blocks of one row.
unsigned blocks_of(std::int64_t ffn, int width) {
  const std::int64_t columns = static_cast<std::int64_t>(kThreads) * width;
  return static_cast<unsigned>((ffn + columns - 1) / columns);
}

}  // namespace

void CudaOps::apply(const SwiGluForward& op) {
  const std::int64_t rows = op.y.dim(0);
  const std::int64_t ffn = op.y.dim(1);
  if (rows == 0 || ffn == 0) return;
  with_device_type(op.y.dtype(), [&]<class T>() {
    with_width<T>(ffn, [&]<int kWidth>() {
      const unsigned blocks = blocks_of(ffn, kWidth);
      swiglu_forward_kernel<T, kWidth>
          <<<static_cast<unsigned>(rows) * blocks, kThreads, 0, stream_>>>(
              elements<T>(op.y), elements<T>(op.gate_up), ffn, blocks);
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
      const unsigned blocks = blocks_of(ffn, kWidth);
      swiglu_backward_kernel<T, kWidth>
          <<<static_cast<unsigned>(rows) * blocks, kThreads, 0, stream_>>>(
              elements<T>(op.dgate_up), elements<T>(op.dy), elements<T>(op.gate_up), ffn, blocks);
      check_launch("swiglu_backward_kernel");
    });
  });
}

}  // namespace nsa::cuda
