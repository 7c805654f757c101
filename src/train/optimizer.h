#pragma once

// Optimizer: the global gradient norm, clipping and AdamW over the parameters a stage trains.

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "core/buffer.h"
#include "params/store.h"
#include "train/schedule.h"

namespace nsa {

class Optimizer {
 public:
  /// `store` and `backend` must outlive it.
  Optimizer(const OptimConfig& config, ParameterStore& store, Backend& backend);

  /// Norm of grad_scale x all gradients (synchronises). Not finite when any gradient is not.
  double gradient_norm(double grad_scale);
  /// One update from the gradients that gradient_norm() saw last, clipped to optim.clip. Parameters
  /// whose gradient is zero by the structure of the stage are left alone: no decay of weights or
  /// moments, and their bias correction does not advance.
  void update(const StepPlan& plan, double grad_scale);

 private:
  OptimConfig config_;
  ParameterStore* store_;
  Backend* backend_;
  Buffer square_sum_memory_;
  Tensor square_sum_;
  std::vector<AdamWRange> ranges_;
};

}  // namespace nsa
