#include "core/philox.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nsa {
namespace {

// Known answers of Philox4x32-10, from the test vectors published with Random123.
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones),
            (std::array<std::uint32_t, 4>{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
}

TEST(Philox, NormalsHaveMeanZeroAndVarianceOne) {
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = philox_normal(7, 3, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  // Five standard errors: 1 / sqrt(n) of the mean, sqrt(2 / n) of the variance.
  EXPECT_NEAR(sum / kCount, 0, 0.016);
  EXPECT_NEAR(squares / kCount, 1, 0.023);
}

TEST(Philox, StreamsDiffer) {
  EXPECT_NE(philox_normal(1, 0, 0), philox_normal(1, 1, 0));
  EXPECT_NE(philox_normal(1, 0, 0), philox_normal(2, 0, 0));
}

}  // namespace
}  // namespace nsa
