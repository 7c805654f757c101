// From one element type to another.

#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread: kWidth adjacent elements. Reads and writes each once: sizeof(From) + sizeof(To)
/// bytes. Rounds to nearest even. With kWidth over 1 both ends must be aligned to its packs.
template <class To, class From, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(To* out, const From* in, std::int64_t count) {
  const std::int64_t begin =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (begin + kWidth <= count) {
    float value[kWidth];
    load(in + begin, value);
    store(out + begin, value);
    return;
  }
  for (std::int64_t i = begin; i < count; ++i) out[i] = from_float<To>(to_float(in[i]));
}

template <class T, int kWidth>
bool aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Pack<T, kWidth>) == 0;
}

}  // namespace

void CudaOps::apply(const Cast& op) {
  const std::int64_t count = op.in.size();
  if (count == 0) return;
  with_device_type(op.in.dtype(), [&]<class From>() {
    with_device_type(op.out.dtype(), [&]<class To>() {
      const auto launch = [&]<int kWidth>() {
        constexpr std::int64_t kBlock = std::int64_t{kThreads} * kWidth;
        cast_kernel<To, From, kWidth>
            <<<static_cast<unsigned>((count + kBlock - 1) / kBlock), kThreads, 0, stream_>>>(
                elements<To>(op.out), elements<From>(op.in), count);
        check_launch("cast_kernel");
      };
      constexpr int kWidth = 8;
      if (aligned<To, kWidth>(elements<To>(op.out)) &&
          aligned<From, kWidth>(elements<From>(op.in))) {
        launch.template operator()<kWidth>();
      } else {
        launch.template operator()<1>();
      }
    });
  });
}

}  // namespace nsa::cuda
