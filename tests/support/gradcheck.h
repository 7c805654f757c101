#pragma once

// Central differences in double against a hand-written gradient.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "support/owned.h"

namespace nsa::test {

constexpr double kGradcheckStep = 1e-5;
/// Truncation error is about h^2 = 1e-10 of the third derivative, rounding about 1e-16 / h = 1e-11.
constexpr double kGradcheckTolerance = 1e-6;

/// Checks that `gradient` is d(objective)/d(input). `objective` must evaluate with input's current
/// contents and leave no trace. Every element is checked up to `limit`, then evenly spread ones.
/// Error allowed: tolerance x the largest |gradient| of the tensor (x 1 where it is zero but for
/// rounding).
inline void expect_gradient(const std::string& name, const std::function<double()>& objective,
                            const Owned& input, const Owned& gradient, std::int64_t limit = 400,
                            double tolerance = kGradcheckTolerance) {
  ASSERT_EQ(input.size(), gradient.size()) << name;
  double largest = 0;
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    ASSERT_TRUE(std::isfinite(gradient.get(i))) << name << " at " << i;
    largest = std::max(largest, std::abs(gradient.get(i)));
  }
  constexpr double kRoundedZero = 1e-12;
  if (largest < kRoundedZero) largest = 1;
  const std::int64_t stride =
      std::max<std::int64_t>(1, input.size() / std::max<std::int64_t>(limit, 1));
  double worst = 0;
  std::int64_t worst_at = 0;
  for (std::int64_t i = 0; i < input.size(); i += stride) {
    const double kept = input.get(i);
    input.set(i, kept + kGradcheckStep);
    const double above = objective();
    input.set(i, kept - kGradcheckStep);
    const double below = objective();
    input.set(i, kept);
    const double error = std::abs((above - below) / (2 * kGradcheckStep) - gradient.get(i));
    if (error > worst) {
      worst = error;
      worst_at = i;
    }
  }
  EXPECT_LE(worst, tolerance * largest)
      << name << "[" << worst_at << "]: gradient " << gradient.get(worst_at)
      << ", largest of the tensor " << largest;
}

}  // namespace nsa::test
