// The compressor phi, forward: pooling, activation, rotation.

#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/nsa/compress_phi.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;

unsigned grid_of(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__device__ __forceinline__ std::int64_t global_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

/// One warp: the pooling weights of one head, through fp64 logits in shared memory.
template <class T>
__global__ void __launch_bounds__(kWarpSize)
    pool_weights_kernel(std::int32_t block, const T* theta, std::int32_t bins, float* weights) {
  extern __shared__ double logits[];
  const auto head = static_cast<std::int32_t>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  double most = -INFINITY;
  for (std::int32_t j = lane; j < block; j += kWarpSize) {
    double logit = 0;
    for (std::int32_t m = 0; theta != nullptr && m < bins; ++m) {
      // The share of bin m in token j, in whole numbers over bins.
      const std::int32_t begin = max(j * bins, m * block);
      const std::int32_t end = min((j + 1) * bins, (m + 1) * block);
      if (end > begin) {
        logit += static_cast<double>(to_float(theta[head * bins + m])) * (end - begin) / bins;
      }
    }
    logits[j] = logit;
    most = fmax(most, logit);
  }
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    most = fmax(most, __shfl_xor_sync(0xFFFFFFFFU, most, lanes));
  }
  double sum = 0;
  for (std::int32_t j = lane; j < block; j += kWarpSize) sum += exp(logits[j] - most);
  sum = warp_sum(sum);
  for (std::int32_t j = lane; j < block; j += kWarpSize) {
    weights[head * block + j] = static_cast<float>(exp(logits[j] - most) / sum);
  }
}

/// One thread: one channel of one row; fp32 sum over the tokens of the block in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_blocks_kernel(const CompressShape s, const T* x, const float* weights, float* wide,
                       T* narrow) {
  const std::int64_t at = global_index();
  if (at >= s.rows() * s.dim) return;
  const std::int64_t width = static_cast<std::int64_t>(s.heads) * s.dim;
  const auto compressed = static_cast<std::int32_t>(at / width);
  const std::int64_t column = at % width;
  const float* weight = weights + column / s.dim * s.block;
  const T* token = x + s.first_token(compressed) * width + column;
  float sum = 0.0F;
#pragma unroll 4
  for (std::int32_t j = 0; j < s.block; ++j) sum = fmaf(weight[j], to_float(token[j * width]), sum);
  wide[at] = sum;
  if (narrow != nullptr) narrow[at] = from_float<T>(sum);
}

/// One thread: one channel of one token of one row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    flatten_blocks_kernel(const CompressShape s, const T* x, const T* position, T* z) {
  const std::int64_t at = global_index();
  const std::int64_t input = static_cast<std::int64_t>(s.block) * s.dim;
  if (at >= s.rows() * input) return;
  const std::int64_t row = at / input;
  const auto compressed = static_cast<std::int32_t>(row / s.heads);
  const std::int64_t token = s.first_token(compressed) + at % input / s.dim;
  const float value = to_float(x[(token * s.heads + row % s.heads) * s.dim + at % s.dim]);
  z[at] = from_float<T>(value + to_float(position[at % input]));
}

/// One thread: one element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    activate_kernel(const float* sums, const T* bias, T* hidden, std::int64_t count,
                    std::int32_t width) {
  const std::int64_t at = global_index();
  if (at >= count) return;
  const float a = sums[at] + to_float(bias[at % width]);
  hidden[at] = from_float<T>(a / (1.0F + expf(-a)));
}

/// One thread: a pair of channels that turn together, or one that does not turn, of one compressed
/// token, all heads. Angles in fp64, rounded once, as on the CPU.
template <class T>
__global__ void __launch_bounds__(kThreads)
    turn_rows_kernel(const CompressShape s, const TurnedRows<T> from, bool inverse, float* wide,
                     T* narrow) {
  const std::int64_t at = global_index();
  const std::int32_t units = s.dim - s.rotary_half;
  if (at >= static_cast<std::int64_t>(s.documents.compressed_rows) * units) return;
  const auto compressed = static_cast<std::int32_t>(at / units);
  const auto unit = static_cast<std::int32_t>(at % units);
  const bool turns = unit < s.rotary_half;
  float cosine = 1.0F;
  float sine = 0.0F;
  if (turns) {
    const std::int32_t document = s.documents.of_compressed[compressed];
    const std::int32_t position =
        s.first_token(compressed) - s.documents.bounds[document] + s.position_offset;
    const double angle = position * pow(s.rope_base, -static_cast<double>(unit) / s.rotary_half);
    double c = 0;
    double d = 0;
    sincos(angle, &d, &c);
    cosine = static_cast<float>(c);
    sine = static_cast<float>(inverse ? -d : d);
  }
  const auto value = [&](std::int64_t i) {
    float sum = 0.0F;
    if (from.first != nullptr) sum += from.first[i];
    if (from.second != nullptr) sum += from.second[i];
    if (from.stored != nullptr) sum += to_float(from.stored[i]);
    return sum;
  };
  const auto write = [&](std::int64_t i, float result) {
    if (wide != nullptr) wide[i] = result;
    if (narrow != nullptr) narrow[i] = from_float<T>(result);
  };
  for (std::int32_t head = 0; head < s.heads; ++head) {
    const std::int64_t row = (static_cast<std::int64_t>(compressed) * s.heads + head) * s.dim;
    if (!turns) {
      write(row + unit + s.rotary_half, value(row + unit + s.rotary_half));
      continue;
    }
    const float first = value(row + unit);
    const float second = value(row + unit + s.rotary_half);
    write(row + unit, first * cosine - second * sine);
    write(row + unit + s.rotary_half, second * cosine + first * sine);
  }
}

}  // namespace

template <class T>
void make_pool_weights(const CompressShape& shape, const T* theta, std::int32_t bins,
                       float* weights, cudaStream_t stream) {
  const std::size_t bytes = static_cast<std::size_t>(shape.block) * sizeof(double);
  pool_weights_kernel<<<static_cast<unsigned>(shape.heads), kWarpSize, bytes, stream>>>(
      shape.block, theta, bins, weights);
  check_launch("pool_weights_kernel");
}

template <class T>
void pool_blocks(const CompressShape& shape, const T* x, const float* weights, float* wide,
                 T* narrow, cudaStream_t stream) {
  if (shape.rows() == 0) return;
  pool_blocks_kernel<<<grid_of(shape.rows() * shape.dim), kThreads, 0, stream>>>(shape, x, weights,
                                                                                 wide, narrow);
  check_launch("pool_blocks_kernel");
}

template <class T>
void flatten_blocks(const CompressShape& shape, const T* x, const T* position, T* z,
                    cudaStream_t stream) {
  if (shape.rows() == 0) return;
  flatten_blocks_kernel<<<grid_of(shape.rows() * shape.block * shape.dim), kThreads, 0, stream>>>(
      shape, x, position, z);
  check_launch("flatten_blocks_kernel");
}

template <class T>
void activate(const float* sums, const T* bias, T* hidden, std::int64_t rows, std::int32_t width,
              cudaStream_t stream) {
  if (rows == 0) return;
  activate_kernel<<<grid_of(rows * width), kThreads, 0, stream>>>(sums, bias, hidden, rows * width,
                                                                  width);
  check_launch("activate_kernel");
}

template <class T>
void turn_rows(const CompressShape& shape, const TurnedRows<T>& from, bool inverse, float* wide,
               T* narrow, cudaStream_t stream) {
  if (shape.rows() == 0) return;
  const std::int64_t units =
      static_cast<std::int64_t>(shape.documents.compressed_rows) * (shape.dim - shape.rotary_half);
  turn_rows_kernel<<<grid_of(units), kThreads, 0, stream>>>(shape, from, inverse, wide, narrow);
  check_launch("turn_rows_kernel");
}

#define NSA_INSTANTIATE(T)                                                                      \
  template void make_pool_weights(const CompressShape&, const T*, std::int32_t, float*,         \
                                  cudaStream_t);                                                \
  template void pool_blocks(const CompressShape&, const T*, const float*, float*, T*,           \
                            cudaStream_t);                                                      \
  template void flatten_blocks(const CompressShape&, const T*, const T*, T*, cudaStream_t);     \
  template void activate(const float*, const T*, T*, std::int64_t, std::int32_t, cudaStream_t); \
  template void turn_rows(const CompressShape&, const TurnedRows<T>&, bool, float*, T*,         \
                          cudaStream_t);
NSA_INSTANTIATE(float)
NSA_INSTANTIATE(bf16)
#undef NSA_INSTANTIATE

}  // namespace nsa::cuda
