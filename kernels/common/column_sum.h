#pragma once

// The second half of sums that many blocks share: their partial sums, in a fixed order.

#include <cstdint>

#include <cuda_runtime_api.h>

namespace nsa::cuda {

/// out[c] += sum over r of partials[r, c], of [rows, columns] partial sums.
void add_column_sums(float* out, const float* partials, std::int64_t rows, std::int64_t columns,
                     cudaStream_t stream);

}  // namespace nsa::cuda
