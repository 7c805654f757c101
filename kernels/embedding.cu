// Token embedding: rows of a table, and their gradients back into it.

#include <cub/device/device_radix_sort.cuh>

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 128;

/// One block: one row. Reads a row of the table, writes a row of the output.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* table, std::int64_t dim) {
  const std::int64_t row = blockIdx.x;
  const T* from = table + tokens[row] * dim;
  for (std::int64_t c = threadIdx.x * kWidth; c < dim; c += kThreads * kWidth) {
    *reinterpret_cast<Pack<T, kWidth>*>(out + row * dim + c) =
        *reinterpret_cast<const Pack<T, kWidth>*>(from + c);
  }
}

__global__ void row_numbers_kernel(std::int32_t* rows, std::int32_t count) {
  const auto row = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < count) rows[row] = row;
}

/// Tokens in ascending order, each with the rows that hold it in ascending order.
struct SortedTokens {
  const std::int32_t* token;
  const std::int32_t* row;
  std::int32_t count;
};

/// One block: the run of equal tokens that begins at its position, if one does; 128 packs of
/// columns. Adds the rows of dout in ascending order, in fp32, to one row of dtable.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(float* dtable, const T* dout, const SortedTokens sorted,
                              std::int64_t dim) {
  const auto begin = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t token = sorted.token[begin];
  if (begin > 0 && sorted.token[begin - 1] == token) return;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth;
  if (c >= dim) return;
  float sum[kWidth] = {};
  constexpr int kAtOnce = 8;  // loads in flight
  std::int32_t at = begin;
  for (; at + kAtOnce <= sorted.count && sorted.token[at + kAtOnce - 1] == token; at += kAtOnce) {
    float value[kAtOnce][kWidth];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      load(dout + static_cast<std::int64_t>(sorted.row[at + j]) * dim + c, value[j]);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += value[j][i];
    }
  }
  for (; at < sorted.count && sorted.token[at] == token; ++at) {
    float value[kWidth];
    load(dout + static_cast<std::int64_t>(sorted.row[at]) * dim + c, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += value[i];
  }
  float* to = dtable + token * dim + c;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] += sum[i];
}

}  // namespace

void CudaOps::apply(const EmbeddingForward& op) {
  const std::int64_t rows = op.out.dim(0);
  const std::int64_t dim = op.out.dim(1);
  if (rows == 0) return;
  with_device_type(op.out.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      embedding_forward_kernel<T, kWidth><<<static_cast<unsigned>(rows), kThreads, 0, stream_>>>(
          elements<T>(op.out), op.tokens.as<std::int32_t>(), elements<T>(op.table), dim);
      check_launch("embedding_forward_kernel");
    });
  });
}

void CudaOps::apply(const EmbeddingBackward& op) {
  const std::int64_t dim = op.dout.dim(1);
  const auto rows = static_cast<std::int32_t>(op.dout.dim(0));
  if (rows == 0) return;
  Scratch::Frame frame(scratch_);
  auto* numbers = frame.take<std::int32_t>(rows);
  auto* sorted_tokens = frame.take<std::int32_t>(rows);
  auto* sorted_rows = frame.take<std::int32_t>(rows);
  row_numbers_kernel<<<static_cast<unsigned>((rows + kThreads - 1) / kThreads), kThreads, 0,
                       stream_>>>(numbers, rows);
  check_launch("row_numbers_kernel");
  // Stable: the rows of one token stay in ascending order.
  std::size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    check(cub::DeviceRadixSort::SortPairs(workspace, bytes, op.tokens.as<std::int32_t>(),
                                          sorted_tokens, numbers, sorted_rows, rows, 0, 31,
                                          stream_));
  };
  sort(nullptr);
  sort(frame.take<char>(static_cast<std::int64_t>(bytes)));
  const SortedTokens sorted = {.token = sorted_tokens, .row = sorted_rows, .count = rows};
  with_device_type(op.dout.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      constexpr std::int64_t kColumns = static_cast<std::int64_t>(kThreads) * kWidth;
      const dim3 grid(static_cast<unsigned>(rows),
                      static_cast<unsigned>((dim + kColumns - 1) / kColumns));
      embedding_backward_kernel<T, kWidth><<<grid, kThreads, 0, stream_>>>(
          elements<float>(op.dtable), elements<T>(op.dout), sorted, dim);
      check_launch("embedding_backward_kernel");
    });
  });
}

}  // namespace nsa::cuda
