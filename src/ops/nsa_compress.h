#pragma once

// Compression of keys or values: blocks of tokens become one token each.

#include <cstdint>

#include "core/batch.h"
#include "core/tensor.h"
#include "ops/nsa_geometry.h"
#include "ops/rope_spec.h"

namespace nsa {

/// The compressor phi. Source: NSA section 3.3.1; pool_mlp is ours (README, "NSA").
enum class Phi : std::uint8_t {
  kMean,     ///< mean of the block
  kMeanMlp,  ///< W2 silu(W1 mean + b1)
  kPoolMlp,  ///< p + W2 silu(W1 p + b1), p = learned pooling: no shape depends on the rate
  kMlpFlat   ///< W2 silu(W1 concat(x_j + e_j) + b1)
};

/// Where a compressed key stands when it is rotated: at i * stride + offset.
enum class CompressPosition : std::uint8_t { kStart, kCenter, kEnd };

constexpr std::int64_t compress_position_offset(CompressPosition position, std::int64_t block) {
  return position == CompressPosition::kStart    ? 0
         : position == CompressPosition::kCenter ? (block - 1) / 2
                                                 : block - 1;
}

/// Parameters of phi (or their gradients); those that the variant does not have are undefined.
struct PhiWeights {
  Tensor theta;     ///< [kv_heads, bins] pooling logits (pool_mlp)
  Tensor position;  ///< [compress_block, dim] added to the tokens of a block (mlp_flat)
  Tensor w1;        ///< [hidden, dim], or [hidden, compress_block * dim] for mlp_flat (j * dim + c)
  Tensor b1;        ///< [hidden]
  Tensor w2;        ///< [dim, hidden]
};

/// Compressed rows of all documents; those of document d follow those of d - 1.
std::int64_t compressed_rows(const Documents& documents, const NsaGeometry& geometry);

/// out[i] = rope(phi(x[i * stride ... i * stride + block)), position of i), document by document;
/// no block spans two documents. With `bypass` (rate 1) out = rope(x).
struct CompressForward {
  Tensor out;  ///< out [compressed_rows, kv_heads, dim]
  Tensor x;    ///< in  [tokens, kv_heads, dim]
  Phi phi = Phi::kPoolMlp;
  PhiWeights weights;
  bool bypass = false;  ///< the identity; only at rate 1
  RopeSpec rope;        ///< rotary_dim 0: not rotated (values; keys rotated before phi)
  CompressPosition position = CompressPosition::kCenter;
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

/// Gradients of the above. phi is evaluated again: it is cheap, and nothing is saved for it.
struct CompressBackward {
  Tensor dx;            ///< out [tokens, kv_heads, dim], overwritten; 0 for tokens in no block
  PhiWeights dweights;  ///< in/out, grad dtype, added to; undefined with `bypass`
  Tensor dout;          ///< in  [compressed_rows, kv_heads, dim]
  Tensor x;             ///< in  [tokens, kv_heads, dim]
  Phi phi = Phi::kPoolMlp;
  PhiWeights weights;
  bool bypass = false;
  RopeSpec rope;
  CompressPosition position = CompressPosition::kCenter;
  NsaGeometry geometry;
  Documents documents;
  void check() const;
};

}  // namespace nsa
