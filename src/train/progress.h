#pragma once

// The line a run prints while it trains.

#include <cstdint>
#include <optional>
#include <string>

#include "train/metrics.h"

namespace nsa {

struct Progress {
  TrainRow row;
  std::int64_t steps = 0;          ///< of the whole run
  std::optional<double> val_loss;  ///< newest, if it is of this step or earlier
  std::optional<double> seconds_left;
};

/// "step  1200/20000  loss 3.4127  val 3.4502  gnorm 0.31  lr 5.9e-04  468k tok/s  ...  eta 2h41"
std::string progress_line(const Progress& progress);
/// "2h41", "12m05", "9s"
std::string duration_text(double seconds);
/// "468k", "41.2k", "1.25M"
std::string rate_text(double per_second);

}  // namespace nsa
