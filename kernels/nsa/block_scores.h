#pragma once

// The score pass: importance of selection blocks from the probabilities of compressed keys.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/common/documents.h"
#include "kernels/common/types.cuh"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// Queries [first, first + count) of a batch.
template <class T>
struct ScoreProblem {
  const T* q = nullptr;         ///< [tokens, heads, head_dim], of all queries
  const T* k = nullptr;         ///< [compressed rows, kv_heads, head_dim]
  const float* lse = nullptr;   ///< [tokens, heads], natural
  float* importance = nullptr;  ///< [count, kv_heads, stride]; written up to the current block
  std::int64_t stride = 0;
  std::int32_t first = 0, count = 0;
  std::int32_t kv_heads = 0, group = 0, head_dim = 0;
  float scale = 0;
  bool general = false;  ///< no fast path
  NsaGeometry geometry;
  DocumentView documents{};
};

/// Whether score_blocks_tensor() takes these: pieces of 16 bytes, and the heads of a group side by
/// side in one warp.
inline bool scores_fit_tensor_cores(std::int64_t head_dim, std::int64_t group) {
  return head_dim % 8 == 0 && head_dim <= 256 && group <= 32;
}

/// On tensor cores.
void score_blocks_tensor(const ScoreProblem<bf16>& problem, cudaStream_t stream);
/// In fp32 arithmetic, any shape.
template <class T>
void score_blocks_plain(const ScoreProblem<T>& problem, cudaStream_t stream);

}  // namespace nsa::cuda
