#include "kernels/common/check.h"
#include "kernels/rope_table.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread: one turn, 8 bytes written. The angle, its cosine and its sine in fp64, rounded once.
__global__ void __launch_bounds__(kThreads)
    rope_table_kernel(float2* turns, std::int64_t count, std::int64_t half, double base) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const auto channel = static_cast<double>(at % half);
  const double frequency = pow(base, -channel / static_cast<double>(half));
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(at / half) * frequency, &sine, &cosine);
  turns[at] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

}  // namespace

const float2* RopeTable::turns(const RopeSpec& rope, std::int64_t positions) {
  const std::int64_t half = rope.rotary_dim / 2;
  if (half == 0 || positions == 0) return nullptr;
  if (rope.rotary_dim != rope_.rotary_dim || rope.base != rope_.base || positions > positions_) {
    const std::int64_t count = positions * half;
    check(cudaStreamSynchronize(stream_));  // an op before may still read the old table
    memory_ = Buffer(*device_, count * static_cast<std::int64_t>(sizeof(float2)));
    rope_ = rope;
    positions_ = positions;
    rope_table_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
                        stream_>>>(static_cast<float2*>(memory_.data()), count, half, rope.base);
    check_launch("rope_table_kernel");
  }
  return static_cast<const float2*>(memory_.data());
}

}  // namespace nsa::cuda
