// The compressor phi, backward: what is not a matrix product. Sums over all blocks go through slots
// that are added in order.

#include "kernels/common/check.h"
#include "kernels/common/reduce.cuh"
#include "kernels/nsa/compress_phi.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnThreads = 128;

unsigned grid_of(std::int64_t count, int threads = kThreads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

/// The rows of a slot.
struct SlotRows {
  std::int64_t begin, end;

  __device__ SlotRows(std::int64_t rows, unsigned slot) {
    const std::int64_t each = (rows + kCompressSlots - 1) / kCompressSlots;
    begin = min(rows, slot * each);
    end = min(rows, begin + each);
  }
};

/// One thread: one channel of one token and KV head; the blocks that hold it in ascending order.
/// Tokens in no block get 0.
template <class T, class Z>
__global__ void __launch_bounds__(kThreads)
    gather_tokens_kernel(const CompressShape s, const float* weights, const Z* dz, T* dx) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t width = static_cast<std::int64_t>(s.heads) * s.dim;
  if (at >= s.documents.tokens * width) return;
  const auto token = static_cast<std::int32_t>(at / width);
  const auto head = static_cast<std::int32_t>(at % width / s.dim);
  const auto channel = static_cast<std::int32_t>(at % s.dim);
  const std::int32_t document = s.documents.of_token[token];
  const std::int32_t t = token - s.documents.bounds[document];
  const std::int32_t row = s.documents.compressed_begin[document];
  const std::int32_t blocks = s.documents.compressed_begin[document + 1] - row;
  const std::int32_t first = t < s.block ? 0 : (t - s.block + s.stride) / s.stride;
  const std::int32_t last = min(blocks - 1, t / s.stride);
  float sum = 0.0F;
  for (std::int32_t i = first; i <= last; ++i) {
    const std::int32_t j = t - i * s.stride;
    const std::int64_t from = static_cast<std::int64_t>(row + i) * s.heads + head;
    if (weights == nullptr) {
      sum += to_float(dz[(from * s.block + j) * s.dim + channel]);
    } else {
      sum = fmaf(weights[head * s.block + j], to_float(dz[from * s.dim + channel]), sum);
    }
  }
  dx[at] = from_float<T>(sum);
}

/// One block: kColumnThreads columns of the rows of one slot, a column a thread; fp32 sums in row
/// order.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    hidden_gradient_kernel(const HiddenGradient<T> g, std::int64_t rows, std::int32_t width) {
  const auto column = static_cast<std::int32_t>(blockIdx.x * kColumnThreads + threadIdx.x);
  if (column >= width) return;
  const SlotRows slot(rows, blockIdx.y);
  const float bias = to_float(g.bias[column]);
  float sum = 0.0F;
  for (std::int64_t row = slot.begin; row < slot.end; ++row) {
    const std::int64_t at = row * width + column;
    const float a = g.sums[at] + bias;
    const float gate = 1.0F / (1.0F + expf(-a));
    const float da = g.dhidden[at] * gate * (1.0F + a * (1.0F - gate));
    g.hidden[at] = from_float<T>(a * gate);
    g.dsums[at] = from_float<T>(da);
    sum += da;
  }
  g.slots[static_cast<std::int64_t>(blockIdx.y) * width + column] = sum;
}

/// One block: kColumnThreads columns of the rows of one slot, a column a thread; in row order.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_columns_kernel(const T* x, std::int64_t rows, std::int32_t width, float* slots) {
  const auto column = static_cast<std::int32_t>(blockIdx.x * kColumnThreads + threadIdx.x);
  if (column >= width) return;
  const SlotRows slot(rows, blockIdx.y);
  float sum = 0.0F;
#pragma unroll 4
  for (std::int64_t row = slot.begin; row < slot.end; ++row) {
    sum += to_float(x[row * width + column]);
  }
  slots[static_cast<std::int64_t>(blockIdx.y) * width + column] = sum;
}

/// One thread: one element; the slots in order.
__global__ void __launch_bounds__(kThreads)
    add_slots_kernel(const float* slots, std::int32_t width, float* total) {
  const auto at = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= width) return;
  float sum = 0.0F;
#pragma unroll 8
  for (std::int32_t slot = 0; slot < kCompressSlots; ++slot) {
    sum += slots[static_cast<std::int64_t>(slot) * width + at];
  }
  total[at] += sum;
}

/// One block: one head and the compressed tokens of one slot; a warp takes one place j of the block
/// after the other. A lane sums its channels over all blocks in order, then the lanes are summed.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_gradient_kernel(const CompressShape s, const T* x, const float* dz, float* slots) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto head = static_cast<std::int32_t>(blockIdx.x);
  const SlotRows slot(s.documents.compressed_rows, blockIdx.y);
  for (auto j = static_cast<std::int32_t>(threadIdx.x) / kWarpSize; j < s.block;
       j += kThreads / kWarpSize) {
    float sum = 0.0F;
    for (std::int64_t i = slot.begin; i < slot.end; ++i) {
      const std::int64_t token = s.first_token(static_cast<std::int32_t>(i)) + j;
      const T* value = x + (token * s.heads + head) * s.dim;
      const float* gradient = dz + (i * s.heads + head) * s.dim;
      for (std::int32_t c = lane; c < s.dim; c += kWarpSize) {
        sum = fmaf(gradient[c], to_float(value[c]), sum);
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      slots[(static_cast<std::int64_t>(blockIdx.y) * s.heads + head) * s.block + j] = sum;
    }
  }
}

/// One warp: the logits of one head, in fp64: dlogit_j = w_j (dw_j - <w, dw>), resampled to bins.
__global__ void __launch_bounds__(kWarpSize)
    theta_gradient_kernel(std::int32_t heads, std::int32_t block, const float* weights,
                          const float* slots, std::int32_t bins, float* dtheta) {
  extern __shared__ double dlogits[];
  const auto head = static_cast<std::int32_t>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  double mean = 0;
  for (std::int32_t j = lane; j < block; j += kWarpSize) {
    double total = 0;
    for (std::int32_t slot = 0; slot < kCompressSlots; ++slot) {
      total += static_cast<double>(slots[(slot * heads + head) * block + j]);
    }
    dlogits[j] = total;
    mean += static_cast<double>(weights[head * block + j]) * total;
  }
  mean = warp_sum(mean);
  for (std::int32_t j = lane; j < block; j += kWarpSize) {
    dlogits[j] = static_cast<double>(weights[head * block + j]) * (dlogits[j] - mean);
  }
  __syncwarp();
  for (std::int32_t m = lane; m < bins; m += kWarpSize) {
    double sum = 0;
    for (std::int32_t j = 0; j < block; ++j) {
      const std::int32_t begin = max(j * bins, m * block);
      const std::int32_t end = min((j + 1) * bins, (m + 1) * block);
      if (end > begin) sum += dlogits[j] * (end - begin) / bins;
    }
    dtheta[head * bins + m] += static_cast<float>(sum);
  }
}

}  // namespace

template <class T, class Z>
void gather_tokens(const CompressShape& shape, const float* weights, const Z* dz, T* dx,
                   cudaStream_t stream) {
  const std::int64_t count =
      static_cast<std::int64_t>(shape.documents.tokens) * shape.heads * shape.dim;
  if (count == 0) return;
  gather_tokens_kernel<<<grid_of(count), kThreads, 0, stream>>>(shape, weights, dz, dx);
  check_launch("gather_tokens_kernel");
}

template <class T>
void differentiate_hidden(const HiddenGradient<T>& gradient, std::int64_t rows, std::int32_t width,
                          cudaStream_t stream) {
  hidden_gradient_kernel<<<dim3(grid_of(width, kColumnThreads), kCompressSlots), kColumnThreads, 0,
                           stream>>>(gradient, rows, width);
  check_launch("hidden_gradient_kernel");
}

template <class T>
void sum_columns(const T* x, std::int64_t rows, std::int32_t width, float* slots,
                 cudaStream_t stream) {
  sum_columns_kernel<<<dim3(grid_of(width, kColumnThreads), kCompressSlots), kColumnThreads, 0,
                       stream>>>(x, rows, width, slots);
  check_launch("sum_columns_kernel");
}

void add_slots(const float* slots, std::int32_t width, float* total, cudaStream_t stream) {
  add_slots_kernel<<<grid_of(width), kThreads, 0, stream>>>(slots, width, total);
  check_launch("add_slots_kernel");
}

template <class T>
void sum_pool_gradient(const CompressShape& shape, const T* x, const float* dz, float* slots,
                       cudaStream_t stream) {
  pool_gradient_kernel<<<dim3(static_cast<unsigned>(shape.heads), kCompressSlots), kThreads, 0,
                         stream>>>(shape, x, dz, slots);
  check_launch("pool_gradient_kernel");
}

void add_theta_gradient(const CompressShape& shape, const float* weights, const float* slots,
                        std::int32_t bins, float* dtheta, cudaStream_t stream) {
  const std::size_t bytes = static_cast<std::size_t>(shape.block) * sizeof(double);
  theta_gradient_kernel<<<static_cast<unsigned>(shape.heads), kWarpSize, bytes, stream>>>(
      shape.heads, shape.block, weights, slots, bins, dtheta);
  check_launch("theta_gradient_kernel");
}

template void gather_tokens(const CompressShape&, const float*, const float*, float*, cudaStream_t);
template void gather_tokens(const CompressShape&, const float*, const float*, bf16*, cudaStream_t);
template void gather_tokens(const CompressShape&, const float*, const bf16*, bf16*, cudaStream_t);
template void differentiate_hidden(const HiddenGradient<float>&, std::int64_t, std::int32_t,
                                   cudaStream_t);
template void differentiate_hidden(const HiddenGradient<bf16>&, std::int64_t, std::int32_t,
                                   cudaStream_t);
template void sum_columns(const float*, std::int64_t, std::int32_t, float*, cudaStream_t);
template void sum_columns(const bf16*, std::int64_t, std::int32_t, float*, cudaStream_t);
template void sum_pool_gradient(const CompressShape&, const float*, const float*, float*,
                                cudaStream_t);
template void sum_pool_gradient(const CompressShape&, const bf16*, const float*, float*,
                                cudaStream_t);

}  // namespace nsa::cuda
