#include "train/host_memory.h"

#include <limits>

#include <gtest/gtest.h>

#include "core/log.h"
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

TEST(HostMemory, WhatIsOffloadedMustFitTheHost) {
  const MemoryPlan plan{.master = kGiB, .m = kGiB, .v = kGiB, .offloaded = 3 * kGiB};
  EXPECT_NO_THROW(check_offload(plan, 3 * kGiB));
  test::expect_error(
      ExitCode::kConfig,
      {"memory.offload", "need 3.00 GiB", "machine has 2.00 GiB", "memory.offload: none"},
      [&] { check_offload(plan, 2 * kGiB); });
}

TEST(GpuMemory, APlanThatFitsIsNoError) {
  const MemoryPlan plan{.weights = kGiB, .activations = kGiB, .gpu = {.context = kGiB}};
  // The context is there when memory is looked at.
  const std::int64_t before = log::warnings();
  check_gpu_memory(plan, test::small_config(), {.total = 3 * kGiB, .free = 2 * kGiB});
  EXPECT_EQ(log::warnings(), before);
}

TEST(GpuMemory, WhatIsCertainAndDoesNotFitEndsTheRunWithThePlanAndWhatToChange) {
  Config config = test::small_config();
  config.memory.recompute = Recompute::kNone;
  const MemoryPlan plan{
      .weights = kGiB, .activations = 8 * kGiB, .gpu = {.scratch = kGiB, .context = kGiB}};
  test::expect_error(
      ExitCode::kRuntime,
      {"does not fit", "7.00 GiB of 10.00 GiB", "plan was 11.00 GiB", "activations 8.00 GiB",
       "scratch of ops 1.00 GiB", "; set memory.recompute: full, or lower"},
      [&] { check_gpu_memory(plan, config, {.total = 10 * kGiB, .free = 7 * kGiB}); });
}

TEST(GpuMemory, WhatIsEstimatedAndDoesNotFitIsAWarning) {
  const MemoryPlan plan{.weights = kGiB, .activations = kGiB, .gpu = {.scratch = kGiB}};
  const std::int64_t before = log::warnings();
  check_gpu_memory(plan, test::small_config(), {.total = 3 * kGiB, .free = 5 * kGiB / 2});
  EXPECT_EQ(log::warnings(), before + 1);
}

}  // namespace
}  // namespace nsa
