#pragma once

// Token embedding.

#include "core/tensor.h"

namespace nsa {

/// out[r] = table[tokens[r]]. Ids are in [0, vocabulary): the data layer has checked them.
struct EmbeddingForward {
  Tensor out;     ///< out [rows, dim]
  Tensor tokens;  ///< in  [rows], i32
  Tensor table;   ///< in  [vocabulary, dim]
  void check() const;
};

/// dtable[tokens[r]] += dout[r], the rows of one token in ascending r: deterministic.
struct EmbeddingBackward {
  Tensor dtable;  ///< in/out [vocabulary, dim], grad dtype, added to
  Tensor dout;    ///< in  [rows, dim]
  Tensor tokens;  ///< in  [rows], i32
  void check() const;
};

}  // namespace nsa
