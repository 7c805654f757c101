#pragma once

// The decoder-only transformer: embedding, blocks, final norm, LM head and loss; forward and
// backward, written once against Ops. It does not know about files, ranks or schedules.

#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.h"
#include "core/batch.h"
#include "ops/backend.h"
#include "params/store.h"

namespace nsa {

/// The largest micro-step of one stage: what memory is planned for.
struct MicroShape {
  std::int64_t rows = 0;     ///< tokens in a micro-batch
  std::int64_t longest = 0;  ///< tokens of the longest document it can hold
  NsaGeometry geometry;
};

/// Sums over the valid targets since the last reset, read from the device.
struct LossSums {
  double cross_entropy = 0;
  double z_loss = 0;
};

/// Memory of one micro-step of training.
struct ActivationBytes {
  std::int64_t arena = 0;   ///< all of it
  std::int64_t logits = 0;  ///< of it, one chunk of logits
};

/// What a Transformer over a store of `layout` and `dtype` would plan for this one shape. Allocates
/// nothing.
ActivationBytes plan_activations(const Config& config, const Layout& layout, DType dtype,
                                 const MicroShape& shape);

class Transformer {
 public:
  /// Plans one arena for the largest of `shapes` and allocates it: nothing is allocated afterwards.
  /// `store` and `backend` must outlive this.
  Transformer(const Config& config, ParameterStore& store, Backend& backend,
              const std::vector<MicroShape>& shapes);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// Forward and backward of one micro-batch. Adds the gradients of
  /// grad_scale * (sum of cross-entropy + sum of z-loss) to the store's, and the sums to
  /// loss_sums().
  void train_micro(const Batch& batch, const NsaGeometry& geometry, double grad_scale);
  /// Forward alone: adds to loss_sums(). With `token_loss` [rows] (stat dtype) also the loss of
  /// each row.
  void evaluate(const Batch& batch, const NsaGeometry& geometry, const Tensor& token_loss = {});
  /// Forward alone, then the logits of row `row`: a view [vocab_size] valid until the next call.
  Tensor logits(const Batch& batch, const NsaGeometry& geometry, std::int64_t row);
  /// The logits of a row of the last evaluate() or logits(), without another forward; a view as
  /// above.
  Tensor logits(std::int64_t row);

  /// Reads the sums (synchronises) and sets them to zero.
  LossSums take_loss_sums();

  /// Tests: the selected blocks of a layer as of the last forward (undefined for dense layers), and
  /// whether the next forwards reuse them instead of selecting.
  Tensor selected_blocks(std::int64_t layer) const;
  void set_reuse_blocks(bool reuse);

  /// Bytes of the activation arena.
  std::int64_t activation_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nsa
