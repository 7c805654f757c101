#pragma once

// RMSNorm, fused with the addition to the residual stream that stands before it.

#include "core/tensor.h"

namespace nsa {

/// residual_out = residual + delta (residual itself when delta is undefined);
/// y = residual_out * rstd * weight, with rstd = 1 / sqrt(mean(residual_out^2) + eps) per row.
struct ResidualNormForward {
  Tensor y;             ///< out [rows, dim]
  Tensor rstd;          ///< out [rows], stat dtype; backward reads it
  Tensor residual_out;  ///< out [rows, dim]; may be `residual` itself; undefined iff delta is
  Tensor residual;      ///< in  [rows, dim]
  Tensor delta;         ///< in  [rows, dim], optional
  Tensor weight;        ///< in  [dim]
  double eps = 1e-5;
  void check() const;
};

/// The gradient of the norm joins the gradient that reaches the residual stream from later layers:
/// dresidual += d(norm)/d(residual_out). The gradient of `delta` is then dresidual itself.
struct ResidualNormBackward {
  Tensor dresidual;        ///< in/out [rows, dim], added to (or overwritten, see `accumulate`)
  Tensor dweight;          ///< in/out [dim], grad dtype, added to
  Tensor dy;               ///< in  [rows, dim]
  Tensor residual;         ///< in  [rows, dim], what was normalised (residual_out)
  Tensor rstd;             ///< in  [rows], stat dtype
  Tensor weight;           ///< in  [dim]
  bool accumulate = true;  ///< false: dresidual is overwritten
  void check() const;
};

}  // namespace nsa
