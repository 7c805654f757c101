#pragma once

// What the copy engine (sm_90 and later) must know of a matrix in device memory.

#include <cstdint>

#include <cudaTypedefs.h>

#include "kernels/common/types.cuh"

namespace nsa::cuda {

/// Columns of a box: 128 bytes, the width of the swizzle.
constexpr std::int32_t kBoxColumns = 64;

/// Of x [rows, columns] in bf16, to be copied in boxes of [box_rows, kBoxColumns] with the 128-byte
/// swizzle; rows past the last become zeros. `columns` is a multiple of kBoxColumns, `data` aligned
/// to 16 bytes, box_rows in 1..256, rows in 1..2^31 - 1.
CUtensorMap map_rows(const bf16* data, std::int64_t rows, std::int64_t columns,
                     std::int32_t box_rows);

}  // namespace nsa::cuda
