#pragma once

// The instruction set: every op of a training step, one overload each. src/ops/cpu and kernels/
// implement it; the model is written once against it.

#include "ops/cast.h"
#include "ops/dense_attention.h"
#include "ops/embedding.h"
#include "ops/gate.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/nsa_attention.h"
#include "ops/nsa_compress.h"
#include "ops/optim.h"
#include "ops/split_rope.h"
#include "ops/swiglu.h"

namespace nsa {

/// Runs ops in the order given. An op is a value: a struct of named fields with its own contract
/// in check(), which no backend can skip. One caller at a time.
class Ops {
 public:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
  virtual ~Ops() = default;

  template <class Op>
  void run(const Op& op) {
    op.check();
    apply(op);
  }

 protected:
  virtual void apply(const MatmulForward&) = 0;
  virtual void apply(const MatmulBackwardInput&) = 0;
  virtual void apply(const MatmulBackwardWeight&) = 0;
  virtual void apply(const ResidualNormForward&) = 0;
  virtual void apply(const ResidualNormBackward&) = 0;
  virtual void apply(const SplitRopeForward&) = 0;
  virtual void apply(const SplitRopeBackward&) = 0;
  virtual void apply(const SwiGluForward&) = 0;
  virtual void apply(const SwiGluBackward&) = 0;
  virtual void apply(const EmbeddingForward&) = 0;
  virtual void apply(const EmbeddingBackward&) = 0;
  virtual void apply(const LinearCrossEntropy&) = 0;

  virtual void apply(const CompressForward&) = 0;
  virtual void apply(const CompressBackward&) = 0;
  virtual void apply(const CompressedSelectForward&) = 0;
  virtual void apply(const CompressedAttentionBackward&) = 0;
  virtual void apply(const SelectBlocks&) = 0;
  virtual void apply(const SelectedAttentionForward&) = 0;
  virtual void apply(const SelectedAttentionBackward&) = 0;
  virtual void apply(const WindowAttentionForward&) = 0;
  virtual void apply(const WindowAttentionBackward&) = 0;
  virtual void apply(const GateCombineForward&) = 0;
  virtual void apply(const GateBackward&) = 0;
  virtual void apply(const DenseAttentionForward&) = 0;
  virtual void apply(const DenseAttentionBackward&) = 0;

  virtual void apply(const Cast&) = 0;
  virtual void apply(const SumSquares&) = 0;
  virtual void apply(const AdamW&) = 0;
};

}  // namespace nsa
