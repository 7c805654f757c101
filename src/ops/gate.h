#pragma once

// The gates that mix the three NSA branches.

#include <array>

#include "core/tensor.h"

namespace nsa {

/// Order of the branches wherever there are three of something.
enum Branch : int { kCompressed = 0, kSelected = 1, kWindow = 2 };

/// gates = sigmoid(logits + bias); out = sum over the defined branches of gate * branch.
struct GateCombineForward {
  Tensor out;                      ///< out [tokens, heads, v_dim]
  Tensor gates;                    ///< out [tokens, heads, 3], stat dtype
  std::array<Tensor, 3> branches;  ///< in  [tokens, heads, v_dim]; an undefined one counts as 0
  Tensor logits;                   ///< in  [tokens, heads, 3]
  Tensor bias;                     ///< in  [3 * heads], element h * 3 + branch
  void check() const;
};

/// With e = <dout, branch>: deltas = gate * e, dlogits = e * gate * (1 - gate); both 0 for
/// undefined branches. One pass makes what all three branch backwards need.
struct GateBackward {
  Tensor dlogits;                  ///< out [tokens, heads, 3], dtype of dout
  Tensor dbias;                    ///< in/out [3 * heads], grad dtype, added to
  Tensor deltas;                   ///< out [tokens, heads, 3], stat dtype
  Tensor dout;                     ///< in  [tokens, heads, v_dim]
  std::array<Tensor, 3> branches;  ///< in  [tokens, heads, v_dim]
  Tensor gates;                    ///< in  [tokens, heads, 3], stat dtype
  void check() const;
};

}  // namespace nsa
