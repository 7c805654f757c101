#include "train/guard.h"

#include <limits>

#include <gtest/gtest.h>

namespace nsa {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NonFiniteGuard, LetsFiniteStepsUpdate) {
  NonFiniteGuard guard({.on_nonfinite = "stop"}, 0);
  EXPECT_EQ(guard.judge(3.4, 1e30), Verdict::kUpdate);
}

TEST(NonFiniteGuard, StopsAtANonFiniteLossOrNorm) {
  NonFiniteGuard guard({.on_nonfinite = "stop"}, 0);
  EXPECT_EQ(guard.judge(kNan, 1.0), Verdict::kStop);
  EXPECT_EQ(guard.judge(3.4, kInfinity), Verdict::kStop);
  EXPECT_EQ(guard.skipped(), 0);
}

TEST(NonFiniteGuard, SkipsAndCountsUntilTheLimit) {
  NonFiniteGuard guard({.on_nonfinite = "skip", .max_skips = 2}, 1);
  EXPECT_EQ(guard.judge(kNan, kNan), Verdict::kSkip);
  EXPECT_EQ(guard.skipped(), 2);
  EXPECT_EQ(guard.judge(kNan, kNan), Verdict::kStop);
}

}  // namespace
}  // namespace nsa
