#pragma once

// Wall-clock time of work on a device.

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/device.h"

namespace nsa::bench {

/// Milliseconds that `body` takes, the device's queue drained on both sides.
template <class Body>
double milliseconds(Device& device, const Body& body) {
  using Clock = std::chrono::steady_clock;
  device.synchronize();
  const Clock::time_point begin = Clock::now();
  body();
  device.synchronize();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Of at least one value; of an even number the mean of the middle two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace nsa::bench
