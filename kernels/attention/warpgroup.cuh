#pragma once

// The instructions of the sm_90a path: products of a warpgroup (four warps) with operands in shared
// memory, and barriers between the warps that load and those that multiply.

#include <cstdint>

#include "kernels/common/tensor_core.cuh"

// Set where code for sm_90a itself is compiled: elsewhere the kernels of this path are empty, and
// the host does not launch them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NSA_WARPGROUPS 1
#else
#define NSA_WARPGROUPS 0
#endif

namespace nsa::cuda {

constexpr int kGroupThreads = 128;

// Tiles in shared memory: slabs of 64 columns, a slab one row of 128 bytes after the other, the
// pieces of a row turned with the row (the 128-byte swizzle of the instructions). Aligned to 1024.

template <int kRows>
__device__ __forceinline__ std::uint32_t slab_offset(int row, int piece) {
  return static_cast<std::uint32_t>((piece >> 3) * kRows * 128 + row * 128 +
                                    (((piece & 7) ^ (row & 7)) << 4));
}

/// A matrix whose rows are those of the tile, from a row that is a multiple of 8: columns are
/// summed over.
__device__ __forceinline__ std::uint64_t row_operand(std::uint32_t address) {
  return static_cast<std::uint64_t>((address & 0x3FFFFU) >> 4) | std::uint64_t{1} << 16 |
         std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
}
/// A matrix whose columns are those of the tile: its rows are summed over.
template <int kRows>
__device__ __forceinline__ std::uint64_t column_operand(std::uint32_t address) {
  return static_cast<std::uint64_t>((address & 0x3FFFFU) >> 4) |
         std::uint64_t{(kRows * 128) >> 4} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}

#if NSA_WARPGROUPS

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Keeps uses of sums after the wait before this.
template <int kTiles>
__device__ __forceinline__ void settle(float (&sum)[kTiles][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) asm volatile("" : "+f"(sum[j][c])::"memory");
  }
}
/// Writes of shared memory by ordinary instructions come before what the tensor cores read next.
__device__ __forceinline__ void order_shared_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// sum [64, 64] = a [64, 16] b [16, 64], row operands. What sum held is not read, so the compiler
/// need not keep it while other products run.
__device__ __forceinline__ void multiply(float (&sum)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;}"
      : "=f"(sum[0][0]), "=f"(sum[0][1]), "=f"(sum[0][2]), "=f"(sum[0][3]), "=f"(sum[1][0]),
        "=f"(sum[1][1]), "=f"(sum[1][2]), "=f"(sum[1][3]), "=f"(sum[2][0]), "=f"(sum[2][1]),
        "=f"(sum[2][2]), "=f"(sum[2][3]), "=f"(sum[3][0]), "=f"(sum[3][1]), "=f"(sum[3][2]),
        "=f"(sum[3][3]), "=f"(sum[4][0]), "=f"(sum[4][1]), "=f"(sum[4][2]), "=f"(sum[4][3]),
        "=f"(sum[5][0]), "=f"(sum[5][1]), "=f"(sum[5][2]), "=f"(sum[5][3]), "=f"(sum[6][0]),
        "=f"(sum[6][1]), "=f"(sum[6][2]), "=f"(sum[6][3]), "=f"(sum[7][0]), "=f"(sum[7][1]),
        "=f"(sum[7][2]), "=f"(sum[7][3])
      : "l"(a), "l"(b));
}

/// The same, added to sum.
__device__ __forceinline__ void multiply_add(float (&sum)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;}"
      : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), "+f"(sum[1][0]),
        "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), "+f"(sum[2][0]), "+f"(sum[2][1]),
        "+f"(sum[2][2]), "+f"(sum[2][3]), "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]),
        "+f"(sum[3][3]), "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]),
        "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), "+f"(sum[6][0]),
        "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), "+f"(sum[7][0]), "+f"(sum[7][1]),
        "+f"(sum[7][2]), "+f"(sum[7][3])
      : "l"(a), "l"(b));
}

/// sum [64, 64] += a [64, 16] b [16, 64], b a column operand.
__device__ __forceinline__ void multiply_add(float (&sum)[8][4], const std::uint32_t (&a)[4],
                                             std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
      : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), "+f"(sum[1][0]),
        "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), "+f"(sum[2][0]), "+f"(sum[2][1]),
        "+f"(sum[2][2]), "+f"(sum[2][3]), "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]),
        "+f"(sum[3][3]), "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]),
        "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), "+f"(sum[6][0]),
        "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), "+f"(sum[7][0]), "+f"(sum[7][1]),
        "+f"(sum[7][2]), "+f"(sum[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// sum [64, 128] = a [64, 16] b [16, 128], row operands. What sum held is not read, so the compiler
/// need not keep it while other products run.
__device__ __forceinline__ void multiply(float (&sum)[16][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;}"
      : "=f"(sum[0][0]), "=f"(sum[0][1]), "=f"(sum[0][2]), "=f"(sum[0][3]), "=f"(sum[1][0]),
        "=f"(sum[1][1]), "=f"(sum[1][2]), "=f"(sum[1][3]), "=f"(sum[2][0]), "=f"(sum[2][1]),
        "=f"(sum[2][2]), "=f"(sum[2][3]), "=f"(sum[3][0]), "=f"(sum[3][1]), "=f"(sum[3][2]),
        "=f"(sum[3][3]), "=f"(sum[4][0]), "=f"(sum[4][1]), "=f"(sum[4][2]), "=f"(sum[4][3]),
        "=f"(sum[5][0]), "=f"(sum[5][1]), "=f"(sum[5][2]), "=f"(sum[5][3]), "=f"(sum[6][0]),
        "=f"(sum[6][1]), "=f"(sum[6][2]), "=f"(sum[6][3]), "=f"(sum[7][0]), "=f"(sum[7][1]),
        "=f"(sum[7][2]), "=f"(sum[7][3]), "=f"(sum[8][0]), "=f"(sum[8][1]), "=f"(sum[8][2]),
        "=f"(sum[8][3]), "=f"(sum[9][0]), "=f"(sum[9][1]), "=f"(sum[9][2]), "=f"(sum[9][3]),
        "=f"(sum[10][0]), "=f"(sum[10][1]), "=f"(sum[10][2]), "=f"(sum[10][3]), "=f"(sum[11][0]),
        "=f"(sum[11][1]), "=f"(sum[11][2]), "=f"(sum[11][3]), "=f"(sum[12][0]), "=f"(sum[12][1]),
        "=f"(sum[12][2]), "=f"(sum[12][3]), "=f"(sum[13][0]), "=f"(sum[13][1]), "=f"(sum[13][2]),
        "=f"(sum[13][3]), "=f"(sum[14][0]), "=f"(sum[14][1]), "=f"(sum[14][2]), "=f"(sum[14][3]),
        "=f"(sum[15][0]), "=f"(sum[15][1]), "=f"(sum[15][2]), "=f"(sum[15][3])
      : "l"(a), "l"(b));
}

/// The same, added to sum.
__device__ __forceinline__ void multiply_add(float (&sum)[16][4], std::uint64_t a,
                                             std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;}"
      : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), "+f"(sum[1][0]),
        "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), "+f"(sum[2][0]), "+f"(sum[2][1]),
        "+f"(sum[2][2]), "+f"(sum[2][3]), "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]),
        "+f"(sum[3][3]), "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]),
        "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), "+f"(sum[6][0]),
        "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), "+f"(sum[7][0]), "+f"(sum[7][1]),
        "+f"(sum[7][2]), "+f"(sum[7][3]), "+f"(sum[8][0]), "+f"(sum[8][1]), "+f"(sum[8][2]),
        "+f"(sum[8][3]), "+f"(sum[9][0]), "+f"(sum[9][1]), "+f"(sum[9][2]), "+f"(sum[9][3]),
        "+f"(sum[10][0]), "+f"(sum[10][1]), "+f"(sum[10][2]), "+f"(sum[10][3]), "+f"(sum[11][0]),
        "+f"(sum[11][1]), "+f"(sum[11][2]), "+f"(sum[11][3]), "+f"(sum[12][0]), "+f"(sum[12][1]),
        "+f"(sum[12][2]), "+f"(sum[12][3]), "+f"(sum[13][0]), "+f"(sum[13][1]), "+f"(sum[13][2]),
        "+f"(sum[13][3]), "+f"(sum[14][0]), "+f"(sum[14][1]), "+f"(sum[14][2]), "+f"(sum[14][3]),
        "+f"(sum[15][0]), "+f"(sum[15][1]), "+f"(sum[15][2]), "+f"(sum[15][3])
      : "l"(a), "l"(b));
}

/// sum [64, 128] += a [64, 16] b [16, 128], b a column operand.
__device__ __forceinline__ void multiply_add(float (&sum)[16][4], const std::uint32_t (&a)[4],
                                             std::uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
      : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), "+f"(sum[1][0]),
        "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), "+f"(sum[2][0]), "+f"(sum[2][1]),
        "+f"(sum[2][2]), "+f"(sum[2][3]), "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]),
        "+f"(sum[3][3]), "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]),
        "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), "+f"(sum[6][0]),
        "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), "+f"(sum[7][0]), "+f"(sum[7][1]),
        "+f"(sum[7][2]), "+f"(sum[7][3]), "+f"(sum[8][0]), "+f"(sum[8][1]), "+f"(sum[8][2]),
        "+f"(sum[8][3]), "+f"(sum[9][0]), "+f"(sum[9][1]), "+f"(sum[9][2]), "+f"(sum[9][3]),
        "+f"(sum[10][0]), "+f"(sum[10][1]), "+f"(sum[10][2]), "+f"(sum[10][3]), "+f"(sum[11][0]),
        "+f"(sum[11][1]), "+f"(sum[11][2]), "+f"(sum[11][3]), "+f"(sum[12][0]), "+f"(sum[12][1]),
        "+f"(sum[12][2]), "+f"(sum[12][3]), "+f"(sum[13][0]), "+f"(sum[13][1]), "+f"(sum[13][2]),
        "+f"(sum[13][3]), "+f"(sum[14][0]), "+f"(sum[14][1]), "+f"(sum[14][2]), "+f"(sum[14][3]),
        "+f"(sum[15][0]), "+f"(sum[15][1]), "+f"(sum[15][2]), "+f"(sum[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif

// Barriers in shared memory.

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}
/// Arrives when this thread's copies so far have.
__device__ __forceinline__ void barrier_arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Waits until the phase of this parity is complete.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra complete;\n"
      "bra again;\n"
      "complete:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// A ring of kStages stages: `full` completes when a stage is loaded, `empty` when it is read.
template <int kStages>
struct Ring {
  std::uint64_t full[kStages];
  std::uint64_t empty[kStages];

  /// By one thread, before a barrier of the block.
  __device__ void init(int loaders, int readers) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&full[i]), loaders);
      barrier_init(shared_address(&empty[i]), readers);
    }
  }
  __device__ void wait_full(std::int32_t step) {
    barrier_wait(shared_address(&full[step % kStages]),
                 static_cast<std::uint32_t>(step / kStages & 1));
  }
  __device__ void wait_empty(std::int32_t step) {
    barrier_wait(shared_address(&empty[step % kStages]),
                 static_cast<std::uint32_t>((step / kStages & 1) ^ 1));
  }
  __device__ void arrive_full(std::int32_t step) {
    barrier_arrive_after_copies(shared_address(&full[step % kStages]));
  }
  /// For what a loader stored itself, beside its copies: counts as one more loader.
  __device__ void arrive_full_now(std::int32_t step) {
    barrier_arrive(shared_address(&full[step % kStages]));
  }
  __device__ void arrive_empty(std::int32_t step) {
    barrier_arrive(shared_address(&empty[step % kStages]));
  }
};

}  // namespace nsa::cuda
