#include "train/sampler.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(SampleToken, TemperatureZeroTakesTheLargestAndTheLowerIdOfATie) {
  const std::vector<double> logits = {1.0, 5.0, 5.0, 2.0};
  EXPECT_EQ(sample_token(logits, 0, 0, 0.999), 1);
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<double> logits = {std::log(0.2), std::log(0.5), std::log(0.3)};
  // By inversion over ids in order of their probability: 1, 2, 0.
  EXPECT_EQ(sample_token(logits, 1, 0, 0.49), 1);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.51), 2);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.79), 2);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.81), 0);
}

TEST(SampleToken, TopKLeavesTheOthersOut) {
  const std::vector<double> logits = {1.0, 3.0, 2.0, 2.9};
  for (double uniform = 0.005; uniform < 1; uniform += 0.01) {
    const std::int32_t id = sample_token(logits, 5.0, 2, uniform);
    EXPECT_TRUE(id == 1 || id == 3) << id;
  }
}

TEST(SampleToken, ALowTemperatureSharpens) {
  const std::vector<double> logits = {0.0, 1.0};
  EXPECT_EQ(sample_token(logits, 10.0, 0, 0.6), 0);
  EXPECT_EQ(sample_token(logits, 0.1, 0, 0.6), 1);
}

}  // namespace
}  // namespace nsa
