// From one element type to another.

#include "kernels/common/check.h"
#include "kernels/common/types.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread: one element.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(To* out, const From* in, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) out[i] = from_float<To>(to_float(in[i]));
}

}  // namespace

void CudaOps::apply(const Cast& op) {
  const std::int64_t count = op.in.size();
  if (count == 0) return;
  with_device_type(op.in.dtype(), [&]<class From>() {
    with_device_type(op.out.dtype(), [&]<class To>() {
      cast_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
                    stream_>>>(elements<To>(op.out), elements<From>(op.in), count);
      check_launch("cast_kernel");
    });
  });
}

}  // namespace nsa::cuda
