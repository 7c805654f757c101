#pragma once

// RunState: everything a run needs to go on besides the parameters and the optimiser's moments.

#include <cstdint>
#include <optional>
#include <string>

#include "data/loader.h"

namespace nsa {

/// What one evaluation found.
struct Validation {
  std::int64_t step = 0;    ///< finished updates of the weights that were evaluated
  double loss = 0;          ///< nats per valid token
  std::int64_t tokens = 0;  ///< valid targets
  friend bool operator==(const Validation&, const Validation&) = default;
};

struct RunState {
  std::int64_t step = 0;  ///< finished updates
  LoaderState loader;
  std::int64_t page = 0;  ///< tokens of a page of the data order
  std::uint64_t seed = 0;
  std::uint32_t train_data = 0;  ///< fingerprint of the training tokens
  std::uint32_t val_data = 0;    ///< of the validation tokens; 0: there are none
  std::int64_t rate = 0;         ///< compression rate of the stage that made these weights
  std::int64_t skipped = 0;      ///< updates that the non-finite guard left out
  double wall_seconds = 0;       ///< that the run took so far, over all its starts
  /// An evaluation was due at this step, but a signal came first: a resume catches up on it, so
  /// that the rows of an interrupted run are those of an uninterrupted one.
  bool evaluation_pending = false;
  std::optional<Validation> last_validation;
  std::string config_yaml;  ///< resolved
  std::uint32_t config_fingerprint = 0;
  friend bool operator==(const RunState&, const RunState&) = default;
};

}  // namespace nsa
