#pragma once

// Where the data order goes on after a resume, when the configuration or the data may have changed.

#include <cstdint>

#include "config/config.h"
#include "train/run_state.h"
#include "train/schedule.h"

namespace nsa {

struct DataPosition {
  std::int64_t page = 0;
  LoaderState loader;
};

/// What the data is now.
struct DataNow {
  std::uint32_t train = 0;  ///< fingerprints
  std::uint32_t val = 0;    ///< 0: none
  std::int64_t tokens = 0;  ///< of the training data
};

/// Obeys data.on_change where a fingerprint differs: error (Error, code 4, naming the set),
/// restart (the training data starts over), ignore (the cursor stays). The stored page stays as
/// long as every stage's seq_len divides it; else the next epoch starts with the new page, since a
/// cursor has no meaning in another order. What is not kept is warned about.
DataPosition resume_position(const RunState& saved, const Config& config, const Schedule& schedule,
                             const DataNow& now);

}  // namespace nsa
