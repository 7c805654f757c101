#pragma once

// The top-n step: which blocks a query selects, given their importance.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/common/documents.h"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// Importances of the queries [first, first + count) of a batch.
struct BlockRanking {
  std::int32_t* blocks = nullptr;     ///< [tokens, kv_heads, top_n], of all queries
  const float* importance = nullptr;  ///< [count, kv_heads, stride]; read up to the current block
  std::int64_t stride = 0;
  std::int32_t first = 0, count = 0;
  std::int32_t kv_heads = 0;
  std::int32_t most_blocks = 0;  ///< of the longest document
  NsaGeometry geometry;
  DocumentView documents{};
};

/// Queues the writing of `blocks` for these queries: the forced blocks, then the best by
/// importance, ties to the lower index; ascending, padded with -1.
void rank_blocks(const BlockRanking& ranking, cudaStream_t stream);

}  // namespace nsa::cuda
