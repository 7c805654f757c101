#pragma once

// The schedule: a pure function of (configuration, step). No state, so nothing to save or restore.

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "ops/nsa_geometry.h"

namespace nsa {

/// Everything that one step needs to know.
struct StepPlan {
  std::int64_t step = 0;   ///< 0-based: the update that makes it step + 1
  std::int64_t stage = 0;  ///< index of the stage that governs it
  bool first_of_stage = false;
  double learning_rate = 0;
  std::int64_t seq_len = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t micro_batch = 0;  ///< sequences of a micro-batch
  std::int64_t micro_batches =
      0;  ///< per step: micro_batch * micro_batches * seq_len = tokens_per_step
  std::int64_t tokens_before = 0;  ///< tokens of all earlier steps
  NsaGeometry geometry;
};

/// One stage with its place in steps.
struct StageSpan {
  std::int64_t first_step = 0;  ///< 0-based
  std::int64_t end_step = 0;
  StageConfig config;
  std::int64_t micro_batch = 0;
  NsaGeometry geometry;
};

/// Sequences of a micro-batch of `stage`; auto: the most that divide its step and hold at most 4096
/// tokens, on a GPU 16384. Throws Error (code 2) for what does not divide.
std::int64_t micro_batch_of(const StageConfig& stage, bool on_gpu);

class Schedule {
 public:
  /// `epoch_tokens`: tokens that one pass over the training data serves; needed when train.epochs
  /// is set, else ignored. Throws Error (code 2) for what does not divide; warns and clamps warm-up
  /// longer than the run and stages that start after its end.
  Schedule(const Config& config, std::int64_t epoch_tokens);

  std::int64_t steps() const { return steps_; }
  /// step in [0, steps()).
  StepPlan at(std::int64_t step) const;
  const std::vector<StageSpan>& stages() const { return stages_; }  ///< those that have any step
  /// The largest seq_len: the page of the data order.
  std::int64_t page() const;
  std::int64_t total_tokens() const;
  double learning_rate(std::int64_t step) const;

 private:
  std::int64_t stage_of(std::int64_t step) const;
  std::int64_t tokens_before(std::int64_t step) const;

  Config config_;
  std::int64_t steps_ = 0;
  std::int64_t warmup_steps_ = 0;
  std::vector<StageSpan> stages_;
};

}  // namespace nsa
