#pragma once

// Copies to shared memory by the copy engine (sm_90 and later): one thread asks for many bytes, and
// a barrier (attention/warpgroup.cuh) completes when they have arrived.

#include <cstdint>

#include "kernels/common/tensor_map.h"

namespace nsa::cuda {

/// Arrives, and keeps the phase open until `bytes` more have been copied.
__device__ __forceinline__ void barrier_arrive_expecting(std::uint32_t barrier,
                                                         std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Queues `bytes`, a multiple of 16, between addresses aligned to 16.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
/// Queues the box of the map that begins at this column and row: rows of 128 bytes from `to`, which
/// is aligned to 128, in the order of the instructions' 128-byte swizzle. Zeros beyond the last
/// row.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& map,
                                         std::int32_t column, std::int32_t row,
                                         std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
/// Fetches the map itself ahead of its first use.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(&map)) : "memory");
}

}  // namespace nsa::cuda
