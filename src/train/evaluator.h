#pragma once

// Evaluator: the mean loss over a fixed set of validation tokens.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "data/loader.h"
#include "train/position_loss.h"
#include "train/run_state.h"
#include "train/workshop.h"

namespace nsa {

struct Evaluation {
  Validation validation;
  std::vector<PositionBucket> by_position;
};

class Evaluator {
 public:
  /// The workshop must have validation data and outlive this.
  explicit Evaluator(Workshop& shop);

  /// Loss of the weights after `step` updates over the first eval.tokens validation targets, in the
  /// context length and geometry of the stage that `plan` belongs to; ignored targets do not count.
  /// Nothing when `interrupted` (asked before each batch) says so.
  std::optional<Evaluation> evaluate(std::int64_t step, const StepPlan& plan,
                                     const std::function<bool()>& interrupted);

 private:
  void add_losses(PositionLoss& by_position, const Batch& batch);

  Workshop* shop_;
  SequentialLoader loader_;
  Buffer token_loss_;  ///< [largest rows], stat dtype
  std::vector<std::int32_t> targets_;
  std::vector<float> losses_;
};

}  // namespace nsa
