// Token embedding: rows of a table, and their gradients back into it.

#include <cub/device/device_radix_sort.cuh>

#include "kernels/common/check.h"
#include "kernels/common/pack.cuh"
#include "kernels/cuda_ops.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 128;

/// One block: one row. Reads a row of the table, writes a row of the output: 2 * sizeof(T) bytes an
/// element. Copies bits; ids must be in the table.
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

/// One thread: one number, 4 bytes written.
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

/// Sorted positions are cut into tiles, and runs of equal tokens at the tiles' ends: a token that
/// holds a tenth of the text would otherwise keep one block busy long after all others.
constexpr std::int32_t kTile = 64;

/// A tile has at most two pieces of runs that it does not hold whole: one that reaches its first
/// position (slot 0) and one that begins later and reaches over its end (slot 1).
__device__ __forceinline__ std::int64_t slot_of(std::int32_t begin) {
  return static_cast<std::int64_t>(begin / kTile) * 2 + (begin % kTile == 0 ? 0 : 1);
}

/// The first position from `begin` on that does not hold the token of `begin`, at most `limit`.
__device__ __forceinline__ std::int32_t end_of_run(const SortedTokens& sorted, std::int32_t begin,
                                                   std::int32_t limit) {
  const std::int32_t token = sorted.token[begin];
  std::int32_t high = limit;  // binary search: the tokens ascend
  std::int32_t low = begin;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (sorted.token[middle] == token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high;
}

/// One block: the piece of a run that begins at its position, if one does; 128 packs of columns.
/// Adds rows of dout in ascending order, in fp32: to dtable where the piece is the whole run, else
/// into a slot. Reads each row of dout once, reads and writes each touched row of dtable.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(float* dtable, float* slots, const T* dout, const SortedTokens sorted,
                              std::int64_t dim) {
  const auto begin = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t token = sorted.token[begin];
  const bool continues = begin > 0 && sorted.token[begin - 1] == token;
  if (continues && begin % kTile != 0) return;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth;
  if (c >= dim) return;
  const std::int32_t tile_end = min(begin / kTile * kTile + kTile, sorted.count);
  const std::int32_t end = end_of_run(sorted, begin, tile_end);
  float sum[kWidth] = {};
  constexpr int kAtOnce = 8;  // loads in flight
  std::int32_t at = begin;
  for (; at + kAtOnce <= end; at += kAtOnce) {
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
  for (; at < end; ++at) {
    float value[kWidth];
    load(dout + static_cast<std::int64_t>(sorted.row[at]) * dim + c, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += value[i];
  }
  const bool reaches_on = end == tile_end && end < sorted.count && sorted.token[end] == token;
  if (continues || reaches_on) {
    float* slot = slots + slot_of(begin) * dim + c;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) slot[i] = sum[i];
    return;
  }
  float* to = dtable + token * dim + c;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] += sum[i];
}

/// One block: the run that begins in its tile and reaches over the tile's end, if one does; 128
/// columns. Adds the run's slots in ascending order, in fp32, to one row of dtable; reads each slot
/// once.
__global__ void __launch_bounds__(kThreads)
    embedding_slots_kernel(float* dtable, const float* slots, const SortedTokens sorted,
                           std::int64_t dim) {
  const auto first = static_cast<std::int32_t>(blockIdx.x) * kTile;
  const std::int32_t last = first + kTile - 1;
  if (last + 1 >= sorted.count) return;
  const std::int32_t token = sorted.token[last];
  if (sorted.token[last + 1] != token) return;
  const bool from_first = sorted.token[first] == token;
  if (from_first && first > 0 && sorted.token[first - 1] == token) return;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= dim) return;
  const std::int32_t end = end_of_run(sorted, last, sorted.count);
  float sum =
      slots[(static_cast<std::int64_t>(first / kTile) * 2 + (from_first ? 0 : 1)) * dim + c];
#pragma unroll 8
  for (std::int32_t at = last + 1; at < end; at += kTile) sum += slots[slot_of(at) * dim + c];
  dtable[token * dim + c] += sum;
}

/// Bits that the ids of a vocabulary need: what the sort has to look at.
int bits_of(std::int64_t vocabulary) {
  int bits = 1;
  while (bits < 31 && (std::int64_t{1} << bits) < vocabulary) ++bits;
  return bits;
}

unsigned pieces(std::int64_t count, std::int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
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
  row_numbers_kernel<<<pieces(rows, kThreads), kThreads, 0, stream_>>>(numbers, rows);
  check_launch("row_numbers_kernel");
  // Stable: the rows of one token stay in ascending order.
  std::size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    check(cub::DeviceRadixSort::SortPairs(workspace, bytes, op.tokens.as<std::int32_t>(),
                                          sorted_tokens, numbers, sorted_rows, rows, 0,
                                          bits_of(op.dtable.dim(0)), stream_));
  };
  sort(nullptr);
  sort(frame.take<char>(static_cast<std::int64_t>(bytes)));
  const unsigned tiles = pieces(rows, kTile);
  auto* slots = frame.take<float>(static_cast<std::int64_t>(tiles) * 2 * dim);
  const SortedTokens sorted = {.token = sorted_tokens, .row = sorted_rows, .count = rows};
  with_device_type(op.dout.dtype(), [&]<class T>() {
    with_width<T>(dim, [&]<int kWidth>() {
      constexpr std::int64_t kColumns = static_cast<std::int64_t>(kThreads) * kWidth;
      const dim3 grid(static_cast<unsigned>(rows), pieces(dim, kColumns));
      embedding_backward_kernel<T, kWidth><<<grid, kThreads, 0, stream_>>>(
          elements<float>(op.dtable), slots, elements<T>(op.dout), sorted, dim);
      check_launch("embedding_backward_kernel");
    });
  });
  embedding_slots_kernel<<<dim3(tiles, pieces(dim, kThreads)), kThreads, 0, stream_>>>(
      elements<float>(op.dtable), slots, sorted, dim);
  check_launch("embedding_slots_kernel");
}

}  // namespace nsa::cuda
