#pragma once

// The three branches of Native Sparse Attention: compressed (with block selection), selected and
// sliding window. Source: NSA (arXiv 2502.11089), section 3.3.
//
// Common to all: query head h reads KV head h / (heads / kv_heads). Softmax and lse in the stat
// dtype; lse is natural. Everything restarts at each document; no matrix product spans two.

#include "core/batch.h"
#include "core/tensor.h"
#include "ops/nsa_geometry.h"

namespace nsa {

/// Attention over the compressed tokens and, from its probabilities, the blocks each query selects.
///
/// Importance of block j for a KV head = sum over the group's heads and over the compressed tokens
/// i of p[i] * score_weight(i, j) (equations 9 and 10). Blocks: the forced initial and local ones,
/// then the best by importance, ties to the lower index. Rows that see no compressed token: out 0,
/// lse -infinity. Nothing of size tokens x blocks reaches memory unless `importance` is asked for.
struct CompressedSelectForward {
  Tensor out;     ///< out [tokens, heads, v_dim]; undefined: only scores are wanted (then v is too)
  Tensor lse;     ///< out [tokens, heads], stat dtype
  Tensor blocks;  ///< out [tokens, kv_heads, top_n] i32, ascending, document-local, -1 padded at
                  ///< the end; undefined: no selection is wanted
  Tensor importance;  ///< out [tokens, kv_heads, blocks of the longest document], stat dtype,
                      ///< optional (tests); 0 beyond the document
  Tensor q;           ///< in  [tokens, heads, head_dim], rotated
  Tensor k;           ///< in  [compressed_rows, kv_heads, head_dim]
  Tensor v;           ///< in  [compressed_rows, kv_heads, v_dim]
  bool reuse_blocks = false;  ///< blocks is an input and the score pass is skipped: recomputation
                              ///< must see the blocks of the first forward
  double scale = 0;
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

/// The top-n step alone, from given importances (tests, golden files).
struct SelectBlocks {
  Tensor blocks;      ///< out [tokens, kv_heads, top_n] i32, as above
  Tensor importance;  ///< in  [tokens, kv_heads, at least the blocks of the longest document], stat
                      ///< dtype
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

/// Attention over the tokens of the selected blocks up to the query.
struct SelectedAttentionForward {
  Tensor out;     ///< out [tokens, heads, v_dim]
  Tensor lse;     ///< out [tokens, heads], stat dtype
  Tensor blocks;  ///< in  [tokens, kv_heads, top_n] i32, as above
  Tensor q;       ///< in  [tokens, heads, head_dim], rotated
  Tensor k;       ///< in  [tokens, kv_heads, head_dim], rotated
  Tensor v;       ///< in  [tokens, kv_heads, v_dim]
  double scale = 0;
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

/// Attention over the last `window` tokens, the query's own included.
struct WindowAttentionForward {
  Tensor out;  ///< out [tokens, heads, v_dim]
  Tensor lse;  ///< out [tokens, heads], stat dtype
  Tensor q, k, v;
  double scale = 0;
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

/// What the backward of every branch reads and writes. The branch's own upstream gradient is
/// gate * dout and its row sum with the branch output is `deltas` (GateBackward made it), so
/// neither a scaled copy of dout nor the branch output is needed.
struct BranchGradients {
  Tensor dq;       ///< out [tokens, heads, head_dim]; added to when accumulate_dq, else overwritten
  Tensor dk;       ///< out [rows, kv_heads, head_dim], overwritten (rows of k)
  Tensor dv;       ///< out [rows, kv_heads, v_dim], overwritten
  Tensor q, k, v;  ///< in  as in forward
  Tensor lse;      ///< in  [tokens, heads], stat dtype
  Tensor dout;     ///< in  [tokens, heads, v_dim], gradient of the combined output
  Tensor gates;    ///< in  [tokens, heads, 3], stat dtype
  Tensor deltas;   ///< in  [tokens, heads, 3], stat dtype: gate * <dout, branch output>
  bool accumulate_dq = false;
  double scale = 0;
  NsaGeometry geometry;
  Documents documents;
};

struct CompressedAttentionBackward : BranchGradients {
  void check() const;
};
struct SelectedAttentionBackward : BranchGradients {
  Tensor blocks;  ///< in [tokens, kv_heads, top_n] i32: the forward's, never selected again
  void check() const;
};
struct WindowAttentionBackward : BranchGradients {
  void check() const;
};

}  // namespace nsa
