#include "kernels/common/check.h"
#include "kernels/common/column_sum.h"

namespace nsa::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kLanes = 32;

/// One block: 32 columns. Each of 32 lanes sums every 32nd row, then one thread a column adds the
/// lanes in order. Reads each partial sum once (4 bytes); fp32; any extents.
__global__ void __launch_bounds__(kColumns* kLanes)
    column_sum_kernel(float* out, const float* partials, std::int64_t rows, std::int64_t columns) {
  __shared__ float sums[kLanes][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0.0F;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t row = threadIdx.y; row < rows; row += kLanes) {
      sum += partials[row * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = sums[0][threadIdx.x];
  for (int lane = 1; lane < kLanes; ++lane) total += sums[lane][threadIdx.x];
  out[column] += total;
}

}  // namespace

void add_column_sums(float* out, const float* partials, std::int64_t rows, std::int64_t columns,
                     cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const auto blocks = static_cast<unsigned>((columns + kColumns - 1) / kColumns);
  column_sum_kernel<<<blocks, dim3(kColumns, kLanes), 0, stream>>>(out, partials, rows, columns);
  check_launch("column_sum_kernel");
}

}  // namespace nsa::cuda
