#pragma once

// LM head and cross-entropy in one op, in chunks of rows, so that the full logits never exist.

#include "core/tensor.h"

namespace nsa {

/// Per row with a target: ce = log(sum(exp(logits))) - logits[target], z = z_loss * logsumexp^2.
/// The gradients are those of grad_scale * (sum of ce + sum of z).
/// Forward only when dx and dweight are undefined (evaluation).
struct LinearCrossEntropy {
  Tensor loss;  ///< in/out [2], f64, added to: {sum of ce, sum of z} over valid rows
  Tensor
      token_loss;  ///< out [rows], stat dtype, optional: ce of each row, 0 where there is no target
  Tensor dx;       ///< out [rows, dim], optional, overwritten
  Tensor dweight;  ///< in/out [vocabulary, dim], grad dtype, defined iff dx is; added to
  Tensor x;        ///< in  [rows, dim]
  Tensor weight;   ///< in  [vocabulary, dim]
  Tensor targets;  ///< in  [rows], i32, kIgnoredTarget where there is none
  Tensor logits;   ///< scratch [chunk_rows, vocabulary]
  double z_loss = 0;
  double grad_scale = 1;
  void check() const;
};

}  // namespace nsa
