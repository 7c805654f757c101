#include "train/host_memory.h"

#include <limits>

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/model_config.h"
#include "support/temp_folder.h"

namespace nsa {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TEST(HostMemory, IsWhatSomeMachineHas) {
  EXPECT_GT(host_memory_bytes(), kGiB / 4);
  EXPECT_LT(host_memory_bytes(), kNoLimit);
}

TEST(HostMemory, TheTightestControlGroupOnTheWayUpCounts) {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "a/b");
  EXPECT_EQ(control_group_limit(folder.path(), "a/b"), kNoLimit);
  test::spill(folder / "a/b/memory.max", "max\n");
  EXPECT_EQ(control_group_limit(folder.path(), "a/b"), kNoLimit);
  test::spill(folder / "a/memory.max", "5000000000\n");
  EXPECT_EQ(control_group_limit(folder.path(), "a/b"), 5000000000);
  test::spill(folder / "memory.limit_in_bytes", "70000\n");
  EXPECT_EQ(control_group_limit(folder.path(), "a/b"), 70000);
  EXPECT_EQ(control_group_limit(folder.path(), ""), 70000);
}

TEST(HostMemory, APlanThatFitsIsNoError) {
  const MemoryPlan plan{.weights = kGiB, .activations = kGiB};
  EXPECT_NO_THROW(check_memory(plan, test::small_config(), 2 * kGiB));
}

TEST(HostMemory, APlanThatDoesNotFitNamesBothSizesAndWhatTakesMost) {
  Config config = test::small_config();
  const auto expect_advice = [&config](const MemoryPlan& plan, const std::string& advice) {
    test::expect_error(ExitCode::kConfig, {"needs 9.00 GiB", "machine has 8.00 GiB", advice},
                       [&] { check_memory(plan, config, 8 * kGiB); });
  };
  expect_advice({.weights = 5 * kGiB, .activations = 4 * kGiB}, "; lower model.layers");
  expect_advice({.weights = kGiB, .activations = 8 * kGiB, .logits = 5 * kGiB},
                "; raise memory.logits_chunks");
  config.memory.recompute = Recompute::kNone;
  expect_advice({.weights = kGiB, .activations = 8 * kGiB},
                "; set memory.recompute: full, or lower");
  config.memory.recompute = Recompute::kFull;
  expect_advice({.weights = kGiB, .activations = 8 * kGiB}, "; lower train.micro_batch");
}

}  // namespace
}  // namespace nsa
