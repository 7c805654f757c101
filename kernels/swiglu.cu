// SwiGLU on the fused output of gate and up.

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 128;

/// The quotient is off by at most 2 units in the last place, also where exp(-x) is infinite; an
/// exact division would cost as many instructions as all the rest. The hardware's own exponential
/// made the kernel slower, not faster.
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + expf(-x));
}

/// Where a thread works: packs of all rows one after the other, so that memory is read in long
/// stretches.
struct Place {
  std::int64_t row;
  std::int64_t column;
};

template <int kWidth>
__device__ __forceinline__ Place place_of(unsigned pack, unsigned packs_of_row) {
  const unsigned row = pack / packs_of_row;
  return {row, static_cast<std::int64_t>(pack - row * packs_of_row) * kWidth};
}

template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

/// One thread: one pack of a row. Reads gate and up, writes y, once each: 3 * sizeof(T) bytes an
/// element of y. fp32 arithmetic; up to 2^32 - kThreads packs.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(T* y, const T* gate_up, std::int64_t ffn, unsigned packs,
                          unsigned packs_of_row) {
  const unsigned pack = blockIdx.x * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const auto [row, c] = place_of<kWidth>(pack, packs_of_row);
  const T* from = gate_up + row * 2 * ffn + c;
  const auto gates = load_pack<T, kWidth>(from);
  const auto ups = load_pack<T, kWidth>(from + ffn);
  float product[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float gate = to_float(gates.at[i]);
    product[i] = to_float(ups.at[i]) * gate * sigmoid(gate);
  }
  store(y + row * ffn + c, product);
}

/// One thread: one pack of a row. Reads dy, gate and up, writes both gradients, once each: 5 *
/// sizeof(T) bytes an element of dy; they may stand in the place of gate and up, which no other
/// thread reads. fp32 arithmetic; up to 2^32 - kThreads packs.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* dgate_up, const T* dy, const T* gate_up, std::int64_t ffn,
                           unsigned packs, unsigned packs_of_row) {
  const unsigned pack = blockIdx.x * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const auto [row, c] = place_of<kWidth>(pack, packs_of_row);
  const std::int64_t at = row * 2 * ffn + c;
  const auto gates = load_pack<T, kWidth>(gate_up + at);
  const auto ups = load_pack<T, kWidth>(gate_up + at + ffn);
  const auto gradients = load_pack<T, kWidth>(dy + row * ffn + c);
  float dgate[kWidth];
  float dup[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float gate = to_float(gates.at[i]);
    const float gradient = to_float(gradients.at[i]);
    const float open = sigmoid(gate);
    const float silu = gate * open;
    const float slope = open + silu * (1.0F - open);
    dgate[i] = gradient * to_float(ups.at[i]) * slope;
    dup[i] = gradient * silu;
  }
  store(dgate_up + at, dgate);
  store(dgate_up + at + ffn, dup);
}

/// Packs of all rows, and the blocks that they take.
struct Work {
  unsigned packs_of_row;
  unsigned packs;
  unsigned blocks;

  Work(std::int64_t rows, std::int64_t ffn, int width)
      : packs_of_row(static_cast<unsigned>(ffn / width)),
        packs(static_cast<unsigned>(rows * (ffn / width))),
        blocks(static_cast<unsigned>((rows * (ffn / width) + kThreads - 1) / kThreads)) {
    nsa::check(rows * (ffn / width) < (std::int64_t{1} << 32) - kThreads,
               "SwiGLU: too many elements for one call");
  }
};

}  // namespace

void CudaOps::apply(const SwiGluForward& op) {
  const std::int64_t rows = op.y.dim(0);
  const std::int64_t ffn = op.y.dim(1);
  if (rows == 0 || ffn == 0) return;
  with_device_type(op.y.dtype(), [&]<class T>() {
    with_width<T>(ffn, [&]<int kWidth>() {
      const Work work(rows, ffn, kWidth);
      swiglu_forward_kernel<T, kWidth><<<work.blocks, kThreads, 0, stream_>>>(
          elements<T>(op.y), elements<T>(op.gate_up), ffn, work.packs, work.packs_of_row);
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
      const Work work(rows, ffn, kWidth);
      swiglu_backward_kernel<T, kWidth><<<work.blocks, kThreads, 0, stream_>>>(
          elements<T>(op.dgate_up), elements<T>(op.dy), elements<T>(op.gate_up), ffn, work.packs,
          work.packs_of_row);
      check_launch("swiglu_backward_kernel");
    });
  });
}

}  // namespace nsa::cuda
