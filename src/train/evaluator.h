#pragma once

// Evaluator: the mean loss over a fixed set of validation tokens.

#include <cstdint>
#include <functional>
#include <optional>

#include "data/loader.h"
#include "train/run_state.h"
#include "train/workshop.h"

namespace nsa {

class Evaluator {
 public:
  /// The workshop must have validation data and outlive this.
  explicit Evaluator(Workshop& shop);

  /// Loss of the weights after `step` updates over the first eval.tokens validation targets, in the
  /// context length and geometry of the stage that `plan` belongs to; ignored targets do not count.
  /// Nothing when `interrupted` (asked before each batch) says so.
  std::optional<Validation> evaluate(std::int64_t step, const StepPlan& plan,
                                     const std::function<bool()>& interrupted);

 private:
  Workshop* shop_;
  SequentialLoader loader_;
};

}  // namespace nsa
