#pragma once

// The instructions that kernels of the general path are made of (sm_80 and later): tensor cores on
// bf16 with fp32 sums, matrices from shared memory, copies to it that do not wait.

#include <cstdint>

#include "kernels/common/types.cuh"

namespace nsa::cuda {

/// Keys of one tile in shared memory.
constexpr int kTileKeys = 64;
constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.69314718F;

__device__ __forceinline__ std::uint32_t shared_address(const void* data) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(data));
}

/// Bytes from the start of a tile of kDim columns to eight elements of a row. The order of the
/// pieces of a row turns with the row, so that eight rows' pieces lie in different banks.
template <int kDim>
__device__ __forceinline__ std::uint32_t tile_offset(int row, int piece) {
  return static_cast<std::uint32_t>(row * kDim * 2 + ((piece ^ (row & 7)) << 4));
}

/// Queues sixteen bytes to shared memory: from `source`, or zeros.
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// Queues four bytes.
__device__ __forceinline__ void copy_async_word(std::uint32_t to, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(source),
               "r"(valid ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending committed groups of this thread are on their way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4],
                                                         std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// Where a lane points for load_matrices() at the start of a tile, by what the four matrices become.

/// The A operand, 16 rows by 16 columns; or, with load_matrices_transposed(), two B operands whose
/// rows are rows of the tile: 16 of them by 2 x 8 columns.
template <int kDim>
__device__ __forceinline__ std::uint32_t lane_offset_rows(int lane) {
  return tile_offset<kDim>(lane & 15, lane >> 4);
}
/// Two B operands (to[0..1], to[2..3]) whose columns are rows of the tile: 2 x 8 of them by 16
/// columns.
template <int kDim>
__device__ __forceinline__ std::uint32_t lane_offset_columns(int lane) {
  return tile_offset<kDim>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}
/// A lane's address in a tile (aligned to 128 bytes) moved to 16 rows from `row`, a multiple of 8,
/// and 16 columns from `piece`, which is even.
template <int kDim>
__device__ __forceinline__ std::uint32_t moved(std::uint32_t address, int row, int piece) {
  return (address ^ static_cast<std::uint32_t>((piece & 7) << 4)) +
         static_cast<std::uint32_t>((piece >> 3) * 128 + row * kDim * 2);
}

/// sum [16, 8] += a [16, 16] b [16, 8]. A thread holds of sum: (lane / 4, 2 (lane % 4) + {0, 1})
/// and the same eight rows on.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 2^x within 2 ulp; 0 for -infinity.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two elements in one register, `low` first in memory.
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ float2 unpack(std::uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
}

/// Two neighbouring tiles of sums, 16 rows each, as an A operand.
__device__ __forceinline__ void pack_a(std::uint32_t (&a)[4], const float (&left)[4],
                                       const float (&right)[4]) {
  a[0] = pack(left[0], left[1]);
  a[1] = pack(left[2], left[3]);
  a[2] = pack(right[0], right[1]);
  a[3] = pack(right[2], right[3]);
}

}  // namespace nsa::cuda
