#pragma once

// Workshop: the parts that every mode that runs the model needs, built once.

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "model/transformer.h"
#include "ops/backend.h"
#include "params/store.h"
#include "train/plan.h"
#include "train/run_data.h"
#include "train/schedule.h"

namespace nsa {

/// Built in the order in which errors are promised: configuration (code 2), then data (code 3),
/// then memory (code 1). Weights have their initial values.
struct Workshop {
  /// Data and the schedule over it: which of them comes first depends on the configuration.
  struct Plan {
    RunData data;
    Schedule schedule;
  };

  explicit Workshop(const Config& configured);

  Config config;  ///< with its `auto` device, precision and micro-batches chosen
  MemoryPlan planned;
  Backend backend;
  RunData data;
  Schedule schedule;
  ParameterStore store;
  Transformer model;

  /// Tokens of the largest micro-batch of any stage.
  std::int64_t largest_rows() const;
  /// Runs a dummy micro-step of every stage, so that all memory has its final size before step 0,
  /// and leaves gradients and loss sums at zero.
  void rehearse();

 private:
  Workshop(const Config& chosen, Plan plan);
};

/// The configuration with its `auto` device, precision and micro-batches chosen: what is written to
/// config.resolved.yaml, so that a run from there makes the same choices.
Config with_choices(Config config);
/// Throws Error (code 2) for a precision that the device does not have. After with_choices.
DType compute_dtype(const Config& config);
/// Throws Error (code 2) for what precision.compute or the device rules out. After with_choices.
StateStorage state_storage(const Config& config);
/// The largest micro-batch of each stage.
std::vector<MicroShape> shapes_of(const Schedule& schedule);
/// The largest seq_len of all stages: tokens of a page of the data order.
std::int64_t largest_seq_len(const Config& config);
/// Tokens that one epoch of `tokens` tokens serves in pages.
std::int64_t epoch_tokens(std::int64_t tokens, std::int64_t page);

}  // namespace nsa
