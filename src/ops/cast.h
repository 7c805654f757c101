#pragma once

// From one element type to another.

#include "core/tensor.h"

namespace nsa {

/// out = in, rounded to nearest even where `out` has fewer digits: weights from master weights.
struct Cast {
  Tensor out;  ///< out [count], of a floating type
  Tensor in;   ///< in  [count], of a floating type
  void check() const;
};

}  // namespace nsa
