#pragma once

// Range attention by warpgroups (sm_90a): one warpgroup of a block loads, the others multiply.

#include "kernels/attention/range_tiles.cuh"
#include "kernels/attention/warpgroup.cuh"
#include "kernels/common/check.h"

namespace nsa::cuda {

constexpr int kReaders = 2;  ///< warpgroups that multiply, 64 rows each
constexpr int kReaderRows = 64 * kReaders;
constexpr int kGroupBlockThreads = (1 + kReaders) * kGroupThreads;
// Registers per thread: of the loading warpgroup, of the others.
constexpr int kLoaderRegisters = 24;
constexpr int kReaderRegisters = 240;
/// What the block asks for beyond its tiles, to align them.
constexpr int kAlignSlack = 1024;

/// Whether these kernels take a problem: head dims in whole pieces, up to two slabs.
inline bool fits_groups(std::int32_t head_dim, std::int32_t v_dim) {
  return head_dim % 8 == 0 && v_dim % 8 == 0 && head_dim <= 128 && v_dim <= 128;
}

template <class Body>
void with_group_dims(std::int32_t head_dim, std::int32_t v_dim, Body&& body) {
  if (head_dim <= 64 && v_dim <= 64) return body.template operator()<64, 64>();
  return body.template operator()<128, 128>();
}

/// Whether the running GPU has the code of a kernel of this path: elsewhere it is empty and
/// declares no shared memory.
template <class Kernel>
bool has_group_code(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.sharedSizeBytes > 0;
}

/// Of the running GPU.
inline int multiprocessor_count() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

__device__ __forceinline__ std::uint32_t aligned_tiles(const void* memory) {
  return (shared_address(memory) + kAlignSlack - 1) & ~static_cast<std::uint32_t>(kAlignSlack - 1);
}

// Copies to tiles of slabs by kGroupThreads threads. Addresses advance by additions: the loading
// warpgroup, which has few registers, would otherwise be what the others wait for.

/// Which pieces of a tile of kDim columns are a thread's: one of every kStep rows.
template <int kDim>
struct Lane {
  static constexpr int kPieces = kDim / 8;
  static constexpr int kStep = kGroupThreads / kPieces;
  static_assert(kStep % 8 == 0);  // the swizzle is the same in all of them
  int row, column;

  __device__ explicit Lane(int thread) : row(thread / kPieces), column(thread % kPieces * 8) {}
};

/// Queues kCount rows of a tile of kRows, from `first` on. Those at or beyond `count` become zeros,
/// and so do columns beyond dim. `from` points at the row that becomes row `first`; rows are
/// `stride` elements apart.
template <int kRows, int kCount, int kDim>
__device__ __forceinline__ void load_rows_apart(std::uint32_t to, const bf16* from,
                                                std::int64_t stride, std::int32_t dim, int thread,
                                                int first, std::int32_t count) {
  const Lane<kDim> own(thread);
  const std::uint32_t place = to + slab_offset<kRows>(first + own.row, own.column / 8);
  const std::int32_t left = own.column < dim ? count - first - own.row : 0;
  from += own.row * stride + own.column;
#pragma unroll
  for (int i = 0; i < kCount; i += Lane<kDim>::kStep) {
    copy_async(place + i * 128, from, i < left);
    from += Lane<kDim>::kStep * stride;
  }
}

/// Queues kCount rows of a tile of kRows, from `first` on: rows (token, head of the group) of x, as
/// far as `count`, then zeros.
template <int kRows, int kCount, int kDim>
__device__ __forceinline__ void load_packed_rows(std::uint32_t to, const bf16* x,
                                                 const RowMap& rows, std::int32_t dim, int thread,
                                                 int first, std::int32_t count) {
  const Lane<kDim> own(thread);
  const std::uint32_t place = to + slab_offset<kRows>(first + own.row, own.column / 8);
  const std::int32_t left = own.column < dim ? count - first - own.row : 0;
  const std::int32_t skip = rows.skip() * dim;
  const bf16* from = x + (rows.base() + first + own.row) * dim + own.column;
#pragma unroll
  for (int i = 0; i < kCount; i += Lane<kDim>::kStep) {
    copy_async(place + i * 128,
               from + static_cast<std::int64_t>(rows.steps(first + own.row + i)) * skip, i < left);
    from += Lane<kDim>::kStep * dim;
  }
}

#if NSA_WARPGROUPS

/// Bytes from the first to the columns of a step of 16 in a tile of slabs.
template <int kRows>
__device__ __forceinline__ constexpr std::uint32_t slab_step(int step) {
  return static_cast<std::uint32_t>(step / 4 * kRows * 128 + step % 4 * 32);
}

/// Queues sum [64, kCount] = a b': 64 rows of a tile of kRowsA, kCount of one of kRowsB.
template <int kRowsA, int kRowsB, int kDim, int kTiles>
__device__ __forceinline__ void multiply_slabs(float (&sum)[kTiles][4], std::uint32_t a,
                                               std::uint32_t b) {
  multiply(sum, row_operand(a), row_operand(b));
#pragma unroll
  for (int step = 1; step < kDim / 16; ++step) {
    multiply_add(sum, row_operand(a + slab_step<kRowsA>(step)),
                 row_operand(b + slab_step<kRowsB>(step)));
  }
}

/// Queues sum [64, kDim] += a b: `a` packed, `b` a tile of kCount rows.
template <int kCount, int kTiles>
__device__ __forceinline__ void multiply_packed(float (&sum)[kTiles][4],
                                                const std::uint32_t (&a)[kCount / 16][4],
                                                std::uint32_t b) {
#pragma unroll
  for (int step = 0; step < kCount / 16; ++step) {
    multiply_add(sum, a[step], column_operand<kCount>(b + static_cast<std::uint32_t>(step * 2048)));
  }
}

/// Sums as the A operands of the next product.
template <int kTiles>
__device__ __forceinline__ void pack_sums(std::uint32_t (&to)[kTiles / 2][4],
                                          const float (&sum)[kTiles][4]) {
#pragma unroll
  for (int step = 0; step < kTiles / 2; ++step) pack_a(to[step], sum[2 * step], sum[2 * step + 1]);
}

/// A barrier of one warpgroup of the block.
__device__ __forceinline__ void group_barrier(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
}

#endif

}  // namespace nsa::cuda
