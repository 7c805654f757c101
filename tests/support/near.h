#pragma once

// The one comparison of floating tensors: largest absolute error against the largest magnitude.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "support/owned.h"

namespace nsa::test {

/// max |actual - expected| <= tolerance * max |expected| (finite elements), or `absolute` where
/// expected is all zero. Non-finite elements must match in place and sign.
inline ::testing::AssertionResult near(const Owned& actual, const Owned& expected, double tolerance,
                                       double absolute = 1e-7) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << actual.size() << " elements, wanted " << expected.size();
  }
  double largest = 0;
  double worst = 0;
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double want = expected.get(i);
    const double got = actual.get(i);
    if (!std::isfinite(want) || !std::isfinite(got)) {
      if (want != got) {
        return ::testing::AssertionFailure() << "[" << i << "]: " << got << ", wanted " << want;
      }
      continue;
    }
    largest = std::max(largest, std::abs(want));
    if (std::abs(got - want) > worst) {
      worst = std::abs(got - want);
      at = i;
    }
  }
  const double allowed = largest == 0 ? absolute : tolerance * largest;
  if (worst <= allowed) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "[" << at << "]: " << actual.get(at) << ", wanted " << expected.get(at) << "; error "
         << worst << ", allowed " << allowed;
}

/// Bit for bit.
inline ::testing::AssertionResult same(const Owned& actual, const Owned& expected) {
  if (actual.size() != expected.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    if (actual.get(i) != expected.get(i)) {
      return ::testing::AssertionFailure()
             << "[" << i << "]: " << actual.get(i) << ", wanted " << expected.get(i);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace nsa::test
