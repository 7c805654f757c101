#include "train/position_loss.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace nsa {
namespace {

/// `lengths` documents; the loss of a row is its position, and rows with target -1 do not count.
std::vector<PositionBucket> buckets_of(std::int64_t seq_len,
                                       const std::vector<std::int32_t>& lengths,
                                       const std::vector<std::int32_t>& ignored = {}) {
  std::vector<std::int32_t> bounds = {0};
  std::vector<float> losses;
  for (const std::int32_t length : lengths) {
    bounds.push_back(bounds.back() + length);
    for (std::int32_t i = 0; i < length; ++i) losses.push_back(static_cast<float>(i));
  }
  std::vector<std::int32_t> targets(losses.size(), 5);
  for (const std::int32_t row : ignored) targets[static_cast<std::size_t>(row)] = kIgnoredTarget;
  PositionLoss loss(seq_len);
  loss.add({.bounds = bounds, .device_bounds = {}}, targets, losses);
  return loss.buckets();
}

TEST(PositionLoss, BucketsDoubleUpToTheSequence) {
  const std::vector<PositionBucket> buckets = buckets_of(64, {64});
  ASSERT_EQ(buckets.size(), 6U);
  EXPECT_EQ(buckets[0].to, 2);
  EXPECT_EQ(buckets[1].from, 2);
  EXPECT_EQ(buckets[1].to, 4);
  EXPECT_EQ(buckets[5].from, 32);
  EXPECT_EQ(buckets[5].to, 64);
  EXPECT_EQ(buckets[5].tokens, 32);
  EXPECT_DOUBLE_EQ(buckets[5].loss, 47.5);
}

TEST(PositionLoss, ADocumentStartsAtZero) {
  const std::vector<PositionBucket> buckets = buckets_of(64, {2, 4});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].tokens, 4);
  EXPECT_DOUBLE_EQ(buckets[0].loss, 0.5);
  EXPECT_EQ(buckets[1].tokens, 2);
  EXPECT_DOUBLE_EQ(buckets[1].loss, 2.5);
}

TEST(PositionLoss, RowsWithoutTargetDoNotCount) {
  const std::vector<PositionBucket> buckets = buckets_of(64, {4}, {3});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[1].tokens, 1);
  EXPECT_DOUBLE_EQ(buckets[1].loss, 2.0);
}

TEST(PositionLoss, ShortSequencesHaveFewerBuckets) {
  const std::vector<PositionBucket> buckets = buckets_of(3, {3, 3});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].to, 1);
  EXPECT_EQ(buckets[1].to, 3);
}

TEST(PositionLoss, BatchesAddUp) {
  const std::vector<std::int32_t> bounds = {0, 2};
  const std::vector<std::int32_t> targets = {1, 1};
  PositionLoss loss(2);
  for (const float value : {1.0F, 3.0F}) {
    loss.add({.bounds = bounds, .device_bounds = {}}, targets, std::vector<float>{value, value});
  }
  ASSERT_EQ(loss.buckets().size(), 2U);
  EXPECT_DOUBLE_EQ(loss.buckets()[1].loss, 2.0);
  EXPECT_EQ(loss.buckets()[1].tokens, 2);
}

TEST(PositionLoss, EveryRowNeedsATarget) {
  const std::vector<std::int32_t> bounds = {0, 2};
  PositionLoss loss(2);
  EXPECT_THROW(loss.add({.bounds = bounds, .device_bounds = {}}, std::vector<std::int32_t>{1},
                        std::vector<float>{1, 1}),
               Error);
}

}  // namespace
}  // namespace nsa
