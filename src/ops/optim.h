#pragma once

// Optimiser ops, on flat tensors.

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace nsa {

/// sum += sum of x^2, in double, in an order that depends on the size alone.
struct SumSquares {
  Tensor sum;  ///< in/out [1], f64, added to
  Tensor x;    ///< in  [count]
  void check() const;
};

/// A run of elements with one update count and one weight decay: a parameter tensor.
struct AdamWRange {
  std::int64_t begin = 0;  ///< first element in the flat tensors
  std::int64_t end = 0;
  std::int64_t updates = 1;  ///< updates of these elements, this one included: bias correction
  double weight_decay = 0;
};

/// AdamW with decoupled decay over the given ranges, which ascend and do not overlap; elements
/// outside them are not touched.
/// g = grad * grad_scale * min(1, max_norm / norm), norm = grad_scale * sqrt(grad_square_sum);
/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
/// master -= lr * (m / (1 - b1^updates) / (sqrt(v / (1 - b2^updates)) + eps) + decay * master);
/// weights = master rounded. Does nothing at all when norm is not finite.
/// Moments in bf16 are computed with in fp32 and then rounded at random (to_bf16_at_random), so
/// that small changes are not lost: those of element i by word i % 4 of philox(rounding_key, 0, i /
/// 4), m by its lower half and v by its upper half. Source: Loshchilov and Hutter, arXiv
/// 1711.05101.
struct AdamW {
  Tensor weights;          ///< out [count]; may be `master` itself when the types agree
  Tensor master;           ///< in/out [count], the grad dtype of the weights, as all below
  Tensor m;                ///< in/out [count]; or bf16
  Tensor v;                ///< in/out [count]; as m
  Tensor grad;             ///< in  [count]
  Tensor grad_square_sum;  ///< in  [1], f64: of the whole model's unscaled gradient
  std::span<const AdamWRange> ranges;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double max_norm = 0;  ///< 0: no clipping
  double grad_scale = 1;
  std::uint64_t rounding_key = 0;  ///< another one for each update
  void check() const;
};

}  // namespace nsa
