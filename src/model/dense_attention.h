#pragma once

// The full causal attention sublayer of dense layers.

#include "config/config.h"
#include "model/activations.h"
#include "model/step.h"
#include "model/weights.h"

namespace nsa {

class DenseAttention {
 public:
  explicit DenseAttention(const Config& config);

  /// Reads a.normed, writes `out` [rows, hidden].
  void forward(const Step& step, const AttentionWeights& w, const AttentionActivations& a,
               const Tensor& out) const;
  /// From the gradient of the sublayer's output (shared.dresidual) to that of its input
  /// (shared.dnormed); adds to the gradients `dw`.
  void backward(const Step& step, const AttentionWeights& w, const AttentionWeights& dw,
                const AttentionActivations& a, const Activations& shared) const;

 private:
  SplitRopeForward split(const Step& step, const AttentionWeights& w,
                         const AttentionActivations& a) const;

  double scale_;
  double norm_eps_;
  RopeSpec rope_;
};

}  // namespace nsa
