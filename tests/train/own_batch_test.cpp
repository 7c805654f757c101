#include "train/own_batch.h"

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(OwnBatch, TargetsAreOneFurtherInsideADocument) {
  const auto device = make_cpu_device();
  OwnBatch own(*device, 8);
  const Batch batch = own.make({10, 11, 12, 13, 14}, 3);
  const std::vector<std::int32_t> expected = {11, 12, kIgnoredTarget, 14, kIgnoredTarget};
  const auto* targets = batch.targets.as<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(targets, targets + 5), expected);
  EXPECT_EQ(batch.targets_valid, 3);
}

TEST(OwnBatch, TheLastDocumentMayBeShorter) {
  const auto device = make_cpu_device();
  OwnBatch own(*device, 8);
  const Batch batch = own.make({10, 11, 12, 13, 14}, 3);
  EXPECT_EQ(batch.documents.count(), 2);
  EXPECT_EQ(batch.documents.length(1), 2);
}

}  // namespace
}  // namespace nsa
