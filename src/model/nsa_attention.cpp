#include "model/nsa_attention.h"

#include <cmath>

#include "params/layout.h"

namespace nsa {
namespace {

/// [rows, heads, dim] as the matrix [rows, heads * dim] that a matmul reads.
Tensor as_matrix(const Tensor& heads) {
  return heads.reshape({heads.dim(0), heads.dim(1) * heads.dim(2)});
}

}  // namespace

NsaAttention::NsaAttention(const Config& config)
    : attention_(config.attention),
      scale_(1.0 / std::sqrt(static_cast<double>(config.model.head_dim))),
      norm_eps_(config.model.norm_eps),
      rope_{.rotary_dim = config.model.rope_dim, .base = config.model.rope_theta} {}

bool NsaAttention::bypasses(const Step& step) const {
  return step.geometry.rate == 1 && attention_.compress.rate1_bypass;
}

RopeSpec NsaAttention::compressed_key_rope() const {
  return attention_.compress.rope == CompressRope::kAfter ? rope_ : RopeSpec{};
}

SplitRopeForward NsaAttention::split(const Step& step, const AttentionWeights& w,
                                     const AttentionActivations& a) const {
  return {.q = a.q,
          .pairs = a.pairs,
          .gate_logits = a.gate_logits,
          .projection = a.projection,
          .q_norm = w.q_norm,
          .k_norm = w.k_norm,
          .norm_eps = norm_eps_,
          .rotate = {attention_.compress.rope == CompressRope::kBefore, true, true},
          .share_kv = attention_.share_kv,
          .rope = rope_,
          .documents = step.documents};
}

void NsaAttention::forward(const Step& step, const AttentionWeights& w,
                           const AttentionActivations& a, const Tensor& out) const {
  step.ops.run(MatmulForward{.out = a.projection, .x = a.normed, .weight = w.projection});
  step.ops.run(split(step, w, a));
  compress(step, w, a);
  attend(step, a);
  combine(step, w, a);
  step.ops.run(MatmulForward{.out = out, .x = as_matrix(a.combined), .weight = w.out});
}

void NsaAttention::rebuild(const Step& step, const AttentionWeights& w,
                           const AttentionActivations& a) const {
  if (attention_.compressed) compress(step, w, a);
  combine(step, w, a);
}

void NsaAttention::compress(const Step& step, const AttentionWeights& w,
                            const AttentionActivations& a) const {
  if (!reads_compressed_keys(attention_)) return;
  const bool bypass = bypasses(step);
  CompressForward op{.out = a.compressed.k,
                     .x = a.pairs[kCompressed].k,
                     .phi = attention_.compress.phi,
                     .weights = bypass ? PhiWeights{} : w.phi_k,
                     .bypass = bypass,
                     .rope = compressed_key_rope(),
                     .position = attention_.compress.position,
                     .geometry = step.geometry,
                     .documents = step.documents};
  step.ops.run(op);
  if (!attention_.compressed) return;
  op.out = a.compressed.v;
  op.x = a.pairs[kCompressed].v;
  op.weights = bypass ? PhiWeights{} : w.phi_v;
  op.rope = {};
  step.ops.run(op);
}

void NsaAttention::attend(const Step& step, const AttentionActivations& a) const {
  const bool only_scores = !attention_.compressed;
  if (reads_compressed_keys(attention_) && !(only_scores && step.reuse_blocks)) {
    step.ops.run(CompressedSelectForward{.out = a.branches[kCompressed],
                                         .lse = a.lse[kCompressed],
                                         .blocks = a.blocks,
                                         .importance = {},
                                         .q = a.q,
                                         .k = a.compressed.k,
                                         .v = a.compressed.v,
                                         .reuse_blocks = step.reuse_blocks && attention_.selected,
                                         .scale = scale_,
                                         .geometry = step.geometry,
                                         .documents = step.documents});
  }
  if (attention_.selected) {
    step.ops.run(SelectedAttentionForward{.out = a.branches[kSelected],
                                          .lse = a.lse[kSelected],
                                          .blocks = a.blocks,
                                          .q = a.q,
                                          .k = a.pairs[kSelected].k,
                                          .v = a.pairs[kSelected].v,
                                          .scale = scale_,
                                          .geometry = step.geometry,
                                          .documents = step.documents});
  }
  if (attention_.window_branch) {
    step.ops.run(WindowAttentionForward{.out = a.branches[kWindow],
                                        .lse = a.lse[kWindow],
                                        .q = a.q,
                                        .k = a.pairs[kWindow].k,
                                        .v = a.pairs[kWindow].v,
                                        .scale = scale_,
                                        .geometry = step.geometry,
                                        .documents = step.documents});
  }
}

void NsaAttention::combine(const Step& step, const AttentionWeights& w,
                           const AttentionActivations& a) const {
  step.ops.run(GateCombineForward{.out = a.combined,
                                  .gates = a.gates,
                                  .branches = a.branches,
                                  .logits = a.gate_logits,
                                  .bias = w.gate_bias});
}

void NsaAttention::backward(const Step& step, const AttentionWeights& w, const AttentionWeights& dw,
                            const AttentionActivations& a, const Activations& shared) const {
  const AttentionScratch& s = shared.nsa_scratch;
  const Tensor& dout = shared.dresidual;
  step.ops.run(MatmulBackwardWeight{.dweight = dw.out, .dout = dout, .x = as_matrix(a.combined)});
  step.ops.run(MatmulBackwardInput{.dx = as_matrix(s.dcombined), .dout = dout, .weight = w.out});
  step.ops.run(GateBackward{.dlogits = s.dgate_logits,
                            .dbias = dw.gate_bias,
                            .deltas = s.deltas,
                            .dout = s.dcombined,
                            .branches = a.branches,
                            .gates = a.gates});
  attend_backward(step, a, s);
  compress_backward(step, w, dw, a, s);
  step.ops.run(SplitRopeBackward{.dprojection = s.dprojection,
                                 .dq_norm = dw.q_norm,
                                 .dk_norm = dw.k_norm,
                                 .dq = s.dq,
                                 .dpairs = s.dpairs,
                                 .dgate_logits = s.dgate_logits,
                                 .layout = split(step, w, a)});
  step.ops.run(
      MatmulBackwardWeight{.dweight = dw.projection, .dout = s.dprojection, .x = a.normed});
  step.ops.run(
      MatmulBackwardInput{.dx = shared.dnormed, .dout = s.dprojection, .weight = w.projection});
}

/// The first branch overwrites dq, the others add to it.
void NsaAttention::attend_backward(const Step& step, const AttentionActivations& a,
                                   const AttentionScratch& s) const {
  if (attention_.window_branch) {
    step.ops.run(WindowAttentionBackward{branch_gradients(step, kWindow, a, s)});
  }
  if (attention_.selected) {
    SelectedAttentionBackward op{branch_gradients(step, kSelected, a, s), a.blocks};
    op.accumulate_dq = attention_.window_branch;
    step.ops.run(op);
  }
  if (attention_.compressed) {
    CompressedAttentionBackward op{branch_gradients(step, kCompressed, a, s)};
    op.dk = s.dcompressed.k;
    op.dv = s.dcompressed.v;
    op.k = a.compressed.k;
    op.v = a.compressed.v;
    op.accumulate_dq = attention_.window_branch || attention_.selected;
    step.ops.run(op);
  }
}

BranchGradients NsaAttention::branch_gradients(const Step& step, Branch branch,
                                               const AttentionActivations& a,
                                               const AttentionScratch& s) const {
  const auto i = static_cast<std::size_t>(branch);
  return {.dq = s.dq,
          .dk = s.dpairs[i].k,
          .dv = s.dpairs[i].v,
          .q = a.q,
          .k = a.pairs[i].k,
          .v = a.pairs[i].v,
          .lse = a.lse[i],
          .dout = s.dcombined,
          .gates = a.gates,
          .deltas = s.deltas,
          .scale = scale_,
          .geometry = step.geometry,
          .documents = step.documents};
}

/// Compressed keys that only score have no gradient: top-n is not differentiable.
void NsaAttention::compress_backward(const Step& step, const AttentionWeights& w,
                                     const AttentionWeights& dw, const AttentionActivations& a,
                                     const AttentionScratch& s) const {
  if (!attention_.compressed) return;
  const bool bypass = bypasses(step);
  CompressBackward op{.dx = s.dpairs[kCompressed].v,
                      .dweights = bypass ? PhiWeights{} : dw.phi_v,
                      .dout = s.dcompressed.v,
                      .x = a.pairs[kCompressed].v,
                      .phi = attention_.compress.phi,
                      .weights = bypass ? PhiWeights{} : w.phi_v,
                      .bypass = bypass,
                      .rope = {},
                      .position = attention_.compress.position,
                      .geometry = step.geometry,
                      .documents = step.documents};
  step.ops.run(op);
  op.dx = s.dpairs[kCompressed].k;
  op.dweights = bypass ? PhiWeights{} : dw.phi_k;
  op.dout = s.dcompressed.k;
  op.x = a.pairs[kCompressed].k;
  op.weights = bypass ? PhiWeights{} : w.phi_k;
  op.rope = compressed_key_rope();
  step.ops.run(op);
}

}  // namespace nsa
