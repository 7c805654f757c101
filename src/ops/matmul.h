#pragma once

// Matrix products of linear layers. Weights are [out, in], as in y = W x.

#include "core/tensor.h"

namespace nsa {

/// out = x * weight^T
struct MatmulForward {
  Tensor out;     ///< out [rows, n]
  Tensor x;       ///< in  [rows, k]
  Tensor weight;  ///< in  [n, k]
  void check() const;
};

/// dx = dout * weight
struct MatmulBackwardInput {
  Tensor dx;      ///< out [rows, k], overwritten
  Tensor dout;    ///< in  [rows, n]
  Tensor weight;  ///< in  [n, k]
  void check() const;
};

/// dweight += dout^T * x
struct MatmulBackwardWeight {
  Tensor dweight;  ///< in/out [n, k], grad dtype, added to
  Tensor dout;     ///< in     [rows, n]
  Tensor x;        ///< in     [rows, k]
  void check() const;
};

}  // namespace nsa
