#pragma once

// The SwiGLU feed-forward sublayer: gate and up as one matmul, their product, down.

#include "model/activations.h"
#include "model/step.h"
#include "model/weights.h"

namespace nsa {

/// Reads a.normed, writes `out` [rows, hidden].
void mlp_forward(const Step& step, const MlpWeights& w, const MlpActivations& a, const Tensor& out);

/// The above up to a.product.
void mlp_expand(const Step& step, const MlpWeights& w, const MlpActivations& a);

/// Makes again what a selective plan did not keep, from a.gate_up.
void mlp_rebuild(const Step& step, const MlpActivations& a);

/// From the gradient of the sublayer's output (shared.dresidual) to that of its input
/// (shared.dnormed); adds to the gradients `dw`. a.gate_up is overwritten by its gradient.
void mlp_backward(const Step& step, const MlpWeights& w, const MlpWeights& dw,
                  const MlpActivations& a, const Activations& shared);

}  // namespace nsa
