#pragma once

// One decoder block on the residual stream: norm, attention, norm, MLP.

#include "model/activations.h"
#include "model/dense_attention.h"
#include "model/nsa_attention.h"
#include "model/step.h"
#include "model/weights.h"

namespace nsa {

/// The residual stream between two sublayers is residual + delta: the next norm adds them up.
struct Stream {
  Tensor residual;  ///< [rows, hidden]
  Tensor delta;     ///< [rows, hidden]; undefined: residual alone
};

class Block {
 public:
  Block(const Config& config, std::int64_t layer, const BlockParameters& parameters);

  /// Continues the stream. Where `in` has no delta, its residual is a.residual_in itself.
  Stream forward(const Step& step, const Stream& in, const BlockActivations& a,
                 const Activations& shared) const;
  /// Turns shared.dresidual, the gradient of the stream behind the block, into that before it, and
  /// adds to the gradients of the block's weights. `keep` says what forward left behind.
  void backward(const Step& step, Keep keep, const BlockActivations& a,
                const Activations& shared) const;

  bool is_dense() const { return is_dense_; }

 private:
  Stream attend(const Step& step, const Stream& in, const BlockActivations& a,
                const Activations& shared) const;
  Stream normalise_for_mlp(const Step& step, const Stream& in, const BlockActivations& a) const;
  void restore_all(const Step& step, const BlockActivations& a, const Activations& shared) const;
  void restore_cheap(const Step& step, const BlockActivations& a) const;

  bool is_dense_;
  double norm_eps_;
  BlockParameters parameters_;
  NsaAttention nsa_;
  DenseAttention dense_;
};

}  // namespace nsa
