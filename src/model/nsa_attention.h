#pragma once

// The Native Sparse Attention sublayer: projections, the three branches, gates. Any subset of the
// branches. Source: NSA (arXiv 2502.11089), section 3.

#include "config/config.h"
#include "model/activations.h"
#include "model/step.h"
#include "model/weights.h"

namespace nsa {

class NsaAttention {
 public:
  explicit NsaAttention(const Config& config);

  /// Reads a.normed, writes `out` [rows, hidden].
  void forward(const Step& step, const AttentionWeights& w, const AttentionActivations& a,
               const Tensor& out) const;
  /// Makes again what a selective plan did not keep: compressed rows, gates and their sum.
  void rebuild(const Step& step, const AttentionWeights& w, const AttentionActivations& a) const;
  /// From the gradient of the sublayer's output (shared.dresidual) to that of its input
  /// (shared.dnormed); adds to the gradients `dw`. Selected blocks are those of the forward; no
  /// gradient flows through their scores.
  void backward(const Step& step, const AttentionWeights& w, const AttentionWeights& dw,
                const AttentionActivations& a, const Activations& shared) const;

 private:
  SplitRopeForward split(const Step& step, const AttentionWeights& w,
                         const AttentionActivations& a) const;
  void compress(const Step& step, const AttentionWeights& w, const AttentionActivations& a) const;
  void attend(const Step& step, const AttentionActivations& a) const;
  void combine(const Step& step, const AttentionWeights& w, const AttentionActivations& a) const;
  void attend_backward(const Step& step, const AttentionActivations& a,
                       const AttentionScratch& s) const;
  void compress_backward(const Step& step, const AttentionWeights& w, const AttentionWeights& dw,
                         const AttentionActivations& a, const AttentionScratch& s) const;
  /// The fields that the backward of every branch shares.
  BranchGradients branch_gradients(const Step& step, Branch branch, const AttentionActivations& a,
                                   const AttentionScratch& s) const;
  bool bypasses(const Step& step) const;
  RopeSpec compressed_key_rope() const;

  AttentionConfig attention_;
  double scale_;
  double norm_eps_;
  RopeSpec rope_;
};

}  // namespace nsa
