#pragma once

// Masked softmax attention where the keys of a query are one contiguous range of key rows: the core
// of the dense, sliding-window and compressed branches, forward and backward, fp32 and bf16.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/tensor.h"
#include "kernels/common/documents.h"
#include "kernels/common/scratch.h"
#include "ops/nsa_geometry.h"

namespace nsa::cuda {

/// Which keys the query at t (local to its document) sees.
enum class KeyRange : std::uint8_t {
  kCausal,     ///< the tokens of its document up to t
  kWindow,     ///< the last geometry.window of those
  kCompressed  ///< the first geometry.visible_blocks(t) compressed rows of its document
};

/// Query head h reads KV head h / (heads / kv_heads). Head dims up to 256.
struct RangeAttentionForward {
  Tensor out;  ///< out [tokens, heads, v_dim]; undefined: lse alone (then v may be undefined)
  Tensor lse;  ///< out [tokens, heads], fp32, natural; rows without keys: -infinity, and out 0
  Tensor q;    ///< in  [tokens, heads, head_dim]
  Tensor k;    ///< in  [rows, kv_heads, head_dim]: tokens, or compressed rows
  Tensor v;    ///< in  [rows, kv_heads, v_dim]
  double scale = 0;
  KeyRange range = KeyRange::kCausal;
  DocumentView documents{};  ///< with the compression tables where range is kCompressed
  NsaGeometry geometry;      ///< ignored where range is kCausal
  bool general = false;      ///< leave out the kernels of single GPU generations
};

/// The upstream gradient of row (t, h) is gate * dout; delta is its product with the row of out.
/// Rows without keys add nothing and get dq 0.
struct RangeAttentionBackward {
  Tensor dq;                      ///< out [tokens, heads, head_dim]; added to when accumulate_dq
  Tensor dk;                      ///< out [rows, kv_heads, head_dim], overwritten
  Tensor dv;                      ///< out [rows, kv_heads, v_dim], overwritten
  Tensor q, k, v;                 ///< in  as in forward
  Tensor lse;                     ///< in  [tokens, heads], fp32
  Tensor dout;                    ///< in  [tokens, heads, v_dim]
  const float* gates = nullptr;   ///< element (t * heads + h) * stat_stride; null: 1
  const float* deltas = nullptr;  ///< likewise
  std::int64_t stat_stride = 1;
  bool accumulate_dq = false;
  double scale = 0;
  KeyRange range = KeyRange::kCausal;
  DocumentView documents{};
  NsaGeometry geometry;
  std::int64_t longest = 0;  ///< tokens of the longest document: how finely work is split
  bool general = false;      ///< as in forward
};

/// Queued on `stream`. Refuses head dims above 256 (configuration error).
void range_attention_forward(const RangeAttentionForward& op, cudaStream_t stream);

/// Queued on `stream`. Takes partial sums of dk and dv from `frame`, in fp32, where few key rows
/// are seen by many queries: at most 10 * multiprocessors tiles of 128 keys, so 173 MB on 132 of
/// them (346 MB at head dims above 192).
void range_attention_backward(const RangeAttentionBackward& op, cudaStream_t stream,
                              Scratch::Frame& frame, int multiprocessors);

}  // namespace nsa::cuda
