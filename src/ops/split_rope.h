#pragma once

// From the fused projection to queries, keys, values and gate logits: layout change, optional
// QK-norm and RoPE in one pass.

#include <array>

#include "core/batch.h"
#include "core/tensor.h"
#include "ops/rope_spec.h"

namespace nsa {

/// The keys and values that one attention reads, or their gradients.
struct KvPair {
  Tensor k;  ///< [tokens, kv_heads, head_dim]
  Tensor v;  ///< [tokens, kv_heads, v_head_dim]; may be undefined (keys that only score)
};

/// Columns of the projection: q | k0 v0 | k1 v1 | k2 v2 | gate logits, where an undefined tensor
/// has no columns. With share_kv one pair of columns feeds every defined pair. In NSA the pairs are
/// compressed, selected, window (order of the gates); dense attention has pair 0 alone.
///
/// QK-norm, where q_norm is defined: each head's q and k is RMS-normalised over head_dim and scaled
/// before it is rotated. Pairs that hold the same result (share_kv, equal `rotate`) may alias.
struct SplitRopeForward {
  Tensor q;                     ///< out [tokens, heads, head_dim], rotated
  std::array<KvPair, 3> pairs;  ///< out; k rotated where rotate[i]
  Tensor gate_logits;           ///< out [tokens, heads, 3], without bias; undefined in dense layers
  Tensor projection;            ///< in  [tokens, columns]
  Tensor q_norm;                ///< in  [head_dim], optional QK-norm weight
  Tensor k_norm;  ///< in  [3, head_dim], row i for pair i (row 0 for all with share_kv); or
                  ///< [1, head_dim] where only row 0 is read
  double norm_eps = 1e-5;
  std::array<bool, 3> rotate = {true, true, true};
  bool share_kv = false;
  RopeSpec rope;
  Documents documents;
  void check() const;
};

/// Gradients of the above, with respect to the projection and the QK-norm weights. An undefined
/// gradient whose forward tensor had columns counts as zero: its columns are zeroed. `layout` is
/// the forward op, whose tensors tell the columns (their contents are not read).
struct SplitRopeBackward {
  Tensor dprojection;            ///< out [tokens, columns], overwritten
  Tensor dq_norm;                ///< in/out [head_dim], grad dtype, added to; iff layout.q_norm is
                                 ///< defined
  Tensor dk_norm;                ///< in/out shape of k_norm, grad dtype, added to
  Tensor dq;                     ///< in  [tokens, heads, head_dim], with respect to the rotated q
  std::array<KvPair, 3> dpairs;  ///< in  separate buffers also under share_kv; summed here
  Tensor dgate_logits;           ///< in  [tokens, heads, 3]
  SplitRopeForward layout;       ///< layout.projection is read when QK-norm is on
  void check() const;
};

}  // namespace nsa
