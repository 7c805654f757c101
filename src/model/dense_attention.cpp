#include "model/dense_attention.h"

#include <cmath>

namespace nsa {
namespace {

/// [rows, heads, dim] as the matrix [rows, heads * dim] that a matmul reads.
Tensor as_matrix(const Tensor& heads) {
  return heads.reshape({heads.dim(0), heads.dim(1) * heads.dim(2)});
}

}  // namespace

DenseAttention::DenseAttention(const Config& config)
    : scale_(1.0 / std::sqrt(static_cast<double>(config.model.head_dim))),
      norm_eps_(config.model.norm_eps),
      rope_{.rotary_dim = config.model.rope_dim, .base = config.model.rope_theta} {}

SplitRopeForward DenseAttention::split(const Step& step, const AttentionWeights& w,
                                       const AttentionActivations& a) const {
  return {.q = a.q,
          .pairs = {a.pairs[0], KvPair{}, KvPair{}},
          .gate_logits = {},
          .projection = a.projection,
          .q_norm = w.q_norm,
          .k_norm = w.k_norm,
          .norm_eps = norm_eps_,
          .rope = rope_,
          .documents = step.documents};
}

void DenseAttention::forward(const Step& step, const AttentionWeights& w,
                             const AttentionActivations& a, const Tensor& out) const {
  step.ops.run(MatmulForward{.out = a.projection, .x = a.normed, .weight = w.projection});
  step.ops.run(split(step, w, a));
  step.ops.run(DenseAttentionForward{.out = a.combined,
                                     .lse = a.lse[0],
                                     .q = a.q,
                                     .k = a.pairs[0].k,
                                     .v = a.pairs[0].v,
                                     .scale = scale_,
                                     .documents = step.documents});
  step.ops.run(MatmulForward{.out = out, .x = as_matrix(a.combined), .weight = w.out});
}

void DenseAttention::backward(const Step& step, const AttentionWeights& w,
                              const AttentionWeights& dw, const AttentionActivations& a,
                              const Activations& shared) const {
  const AttentionScratch& s = shared.dense_scratch;
  const Tensor& dout = shared.dresidual;
  step.ops.run(MatmulBackwardWeight{.dweight = dw.out, .dout = dout, .x = as_matrix(a.combined)});
  step.ops.run(MatmulBackwardInput{.dx = as_matrix(s.dcombined), .dout = dout, .weight = w.out});
  step.ops.run(DenseAttentionBackward{.dq = s.dq,
                                      .dk = s.dpairs[0].k,
                                      .dv = s.dpairs[0].v,
                                      .q = a.q,
                                      .k = a.pairs[0].k,
                                      .v = a.pairs[0].v,
                                      .out = a.combined,
                                      .lse = a.lse[0],
                                      .dout = s.dcombined,
                                      .scale = scale_,
                                      .documents = step.documents});
  step.ops.run(SplitRopeBackward{.dprojection = s.dprojection,
                                 .dq_norm = dw.q_norm,
                                 .dk_norm = dw.k_norm,
                                 .dq = s.dq,
                                 .dpairs = s.dpairs,
                                 .dgate_logits = {},
                                 .layout = split(step, w, a)});
  step.ops.run(
      MatmulBackwardWeight{.dweight = dw.projection, .dout = s.dprojection, .x = a.normed});
  step.ops.run(
      MatmulBackwardInput{.dx = shared.dnormed, .dout = s.dprojection, .weight = w.projection});
}

}  // namespace nsa
