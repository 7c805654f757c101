#pragma once

// SwiGLU, on the fused output of the gate and up projections.

#include "core/tensor.h"

namespace nsa {

/// y = silu(gate) * up, where row = [gate | up].
struct SwiGluForward {
  Tensor y;        ///< out [rows, ffn]
  Tensor gate_up;  ///< in  [rows, 2 * ffn]
  void check() const;
};

struct SwiGluBackward {
  Tensor dgate_up;  ///< out [rows, 2 * ffn], overwritten; may alias gate_up
  Tensor dy;        ///< in  [rows, ffn]
  Tensor gate_up;   ///< in  [rows, 2 * ffn]
  void check() const;
};

}  // namespace nsa
