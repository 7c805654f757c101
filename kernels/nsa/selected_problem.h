#pragma once

// Selected attention as its kernels see it.

#include <cstdint>

#include "kernels/common/documents.h"
#include "kernels/common/types.cuh"
#include "ops/nsa_attention.h"

namespace nsa::cuda {

/// Pointers and extents of one problem; layouts as in ops/nsa_attention.h. T: float or bf16.
template <class T>
struct SelectedProblem {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const std::int32_t* blocks = nullptr;
  T* out = nullptr;      ///< forward only
  float* lse = nullptr;  ///< written forward, read backward
  const T* dout = nullptr;
  const float* gates = nullptr;   ///< of this branch: one in three
  const float* deltas = nullptr;  ///< likewise
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  bool accumulate_dq = false;
  std::int32_t kv_heads = 0, group = 0, head_dim = 0, v_dim = 0;
  std::int32_t select_block = 0, top_n = 0;
  float scale = 0;
  bool general = false;  ///< no fast path
  DocumentView documents{};

  __host__ __device__ std::int32_t tokens() const { return documents.tokens; }
  /// Of (token, KV head) in arrays of one row per pair; times group(): of the first head's row.
  __host__ __device__ std::int64_t pair(std::int32_t token, std::int32_t kv_head) const {
    return static_cast<std::int64_t>(token) * kv_heads + kv_head;
  }
  __host__ __device__ std::int64_t row(std::int32_t token, std::int32_t kv_head,
                                       std::int32_t head) const {
    return pair(token, kv_head) * group + head;
  }
};

/// What forward and backward share.
template <class T, class Op>
SelectedProblem<T> selected_problem(const Op& op, const DocumentView& documents, bool general) {
  SelectedProblem<T> problem;
  problem.q = elements<T>(op.q);
  problem.k = elements<T>(op.k);
  problem.v = elements<T>(op.v);
  problem.blocks = op.blocks.template as<std::int32_t>();
  problem.lse = op.lse.template as<float>();
  problem.kv_heads = static_cast<std::int32_t>(op.k.dim(1));
  problem.group = static_cast<std::int32_t>(op.q.dim(1) / op.k.dim(1));
  problem.head_dim = static_cast<std::int32_t>(op.q.dim(2));
  problem.v_dim = static_cast<std::int32_t>(op.v.dim(2));
  problem.select_block = op.geometry.select_block;
  problem.top_n = op.geometry.top_n;
  problem.scale = static_cast<float>(op.scale);
  problem.general = general;
  problem.documents = documents;
  return problem;
}

/// Whether the tensor-core kernels take these head dims: whole pieces of 16 bytes, and no more
/// accumulators than registers.
inline bool fits_tensor_cores(std::int64_t head_dim, std::int64_t v_dim) {
  return head_dim % 8 == 0 && v_dim % 8 == 0 && head_dim <= 256 && v_dim <= 256;
}

/// Calls body.template operator()<kHeadDim, kValueDim>() with the least padded dims that hold
/// these; fits_tensor_cores() must be true.
template <class Body>
void with_padded_dims(std::int64_t head_dim, std::int64_t v_dim, Body&& body) {
  if (head_dim <= 64 && v_dim <= 64) return body.template operator()<64, 64>();
  if (head_dim <= 128 && v_dim <= 128) return body.template operator()<128, 128>();
  if (head_dim <= 192 && v_dim <= 128) return body.template operator()<192, 128>();
  return body.template operator()<256, 256>();
}

}  // namespace nsa::cuda
