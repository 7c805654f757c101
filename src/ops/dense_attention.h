#pragma once

// Full causal attention within each document: the dense layers, and the yardstick of the sparse
// ones.

#include "core/batch.h"
#include "core/tensor.h"

namespace nsa {

/// Query head h reads KV head h / (heads / kv_heads).
struct DenseAttentionForward {
  Tensor out;  ///< out [tokens, heads, v_dim]
  Tensor lse;  ///< out [tokens, heads], stat dtype, natural log of the sum of exp(scale * q.k)
  Tensor q;    ///< in  [tokens, heads, head_dim]
  Tensor k;    ///< in  [tokens, kv_heads, head_dim]
  Tensor v;    ///< in  [tokens, kv_heads, v_dim]
  double scale = 0;
  Documents documents;
  void check() const;
};

struct DenseAttentionBackward {
  Tensor dq;  ///< out [tokens, heads, head_dim], overwritten
  Tensor dk;  ///< out [tokens, kv_heads, head_dim], overwritten
  Tensor dv;  ///< out [tokens, kv_heads, v_dim], overwritten
  Tensor q, k, v;
  Tensor out;   ///< in  [tokens, heads, v_dim]
  Tensor lse;   ///< in  [tokens, heads], stat dtype
  Tensor dout;  ///< in  [tokens, heads, v_dim]
  double scale = 0;
  Documents documents;
  void check() const;
};

}  // namespace nsa
