#include "model/block.h"

#include "model/mlp.h"

namespace nsa {

Block::Block(const Config& config, std::int64_t layer, const BlockParameters& parameters)
    : is_dense_(is_dense_layer(config.attention, layer)),
      norm_eps_(config.model.norm_eps),
      parameters_(parameters),
      nsa_(config),
      dense_(config) {}

Stream Block::forward(const Step& step, const Stream& in, const BlockActivations& a,
                      const Activations& shared) const {
  const Stream middle = attend(step, in, a, shared);
  const Stream summed = normalise_for_mlp(step, middle, a);
  mlp_forward(step, parameters_.weights.mlp, a.mlp, shared.delta);
  return {.residual = summed.residual, .delta = shared.delta};
}

Stream Block::attend(const Step& step, const Stream& in, const BlockActivations& a,
                     const Activations& shared) const {
  const AttentionWeights& w = parameters_.weights.attention;
  step.ops.run(ResidualNormForward{.y = a.attention.normed,
                                   .rstd = a.attention.rstd,
                                   .residual_out = in.delta.defined() ? a.residual_in : Tensor(),
                                   .residual = in.residual,
                                   .delta = in.delta,
                                   .weight = w.norm,
                                   .eps = norm_eps_});
  if (is_dense_) {
    dense_.forward(step, w, a.attention, shared.delta);
  } else {
    nsa_.forward(step, w, a.attention, shared.delta);
  }
  return {.residual = a.residual_in, .delta = shared.delta};
}

Stream Block::normalise_for_mlp(const Step& step, const Stream& in,
                                const BlockActivations& a) const {
  step.ops.run(ResidualNormForward{.y = a.mlp.normed,
                                   .rstd = a.mlp.rstd,
                                   .residual_out = in.delta.defined() ? a.residual_mid : Tensor(),
                                   .residual = in.residual,
                                   .delta = in.delta,
                                   .weight = parameters_.weights.mlp.norm,
                                   .eps = norm_eps_});
  return {.residual = a.residual_mid, .delta = {}};
}

void Block::backward(const Step& step, Keep keep, const BlockActivations& a,
                     const Activations& shared) const {
  if (keep == Keep::kInput) restore_all(step, a, shared);
  if (keep == Keep::kExpensive) restore_cheap(step, a);
  const BlockWeights& w = parameters_.weights;
  const BlockWeights& dw = parameters_.gradients;
  mlp_backward(step, w.mlp, dw.mlp, a.mlp, shared);
  step.ops.run(ResidualNormBackward{.dresidual = shared.dresidual,
                                    .dweight = dw.mlp.norm,
                                    .dy = shared.dnormed,
                                    .residual = a.residual_mid,
                                    .rstd = a.mlp.rstd,
                                    .weight = w.mlp.norm});
  if (is_dense_) {
    dense_.backward(step, w.attention, dw.attention, a.attention, shared);
  } else {
    nsa_.backward(step, w.attention, dw.attention, a.attention, shared);
  }
  step.ops.run(ResidualNormBackward{.dresidual = shared.dresidual,
                                    .dweight = dw.attention.norm,
                                    .dy = shared.dnormed,
                                    .residual = a.residual_in,
                                    .rstd = a.attention.rstd,
                                    .weight = w.attention.norm});
}

/// Everything from what enters the block, with the blocks that the first forward selected: a second
/// top-n could decide a near-tie otherwise.
void Block::restore_all(const Step& step, const BlockActivations& a,
                        const Activations& shared) const {
  Step again = step;
  again.reuse_blocks = true;
  const Stream middle = attend(again, {.residual = a.residual_in, .delta = {}}, a, shared);
  normalise_for_mlp(again, middle, a);
  mlp_expand(again, parameters_.weights.mlp, a.mlp);
}

/// What needs neither a matmul of the width of the model nor an attention.
void Block::restore_cheap(const Step& step, const BlockActivations& a) const {
  const BlockWeights& w = parameters_.weights;
  step.ops.run(ResidualNormForward{.y = a.attention.normed,
                                   .rstd = a.attention.rstd,
                                   .residual_out = {},
                                   .residual = a.residual_in,
                                   .delta = {},
                                   .weight = w.attention.norm,
                                   .eps = norm_eps_});
  if (!is_dense_) nsa_.rebuild(step, w.attention, a.attention);
  normalise_for_mlp(step, {.residual = a.residual_mid, .delta = {}}, a);
  mlp_rebuild(step, a.mlp);
}

}  // namespace nsa
