// What the GPU tells about its work and itself.

#include <gtest/gtest.h>

#include "core/buffer.h"
#include "kernels/nvml.h"
#include "ops/backend.h"

namespace nsa::test {
namespace {

class GpuDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << "no GPU here";
  }
};

/// Seconds that a watch finds in `intervals` fills of `bytes` bytes.
double seconds_of_fills(Device& device, int intervals, std::int64_t bytes) {
  const Buffer memory(device, bytes);
  const auto watch = device.make_stopwatch();
  for (int i = 0; i < intervals; ++i) {
    watch->start();
    device.fill_zero(memory.data(), bytes);
    watch->stop();
  }
  return watch->take_seconds();
}

TEST_F(GpuDevice, AStopwatchFindsTheTimeOfTheGpuAndNotOfTheQueueing) {
  const Backend backend = make_backend("cuda");
  // 1 GiB at 100 TB/s, which no memory reaches.
  EXPECT_GT(seconds_of_fills(*backend.device, 1, std::int64_t{1} << 30), 1e-5);
}

TEST_F(GpuDevice, AStopwatchHoldsMoreIntervalsThanItHasEvents) {
  const Backend backend = make_backend("cuda");
  EXPECT_GT(seconds_of_fills(*backend.device, 3000, std::int64_t{1} << 20), 0);
}

TEST_F(GpuDevice, AStopwatchThatNeverRanHasNoSeconds) {
  const Backend backend = make_backend("cuda");
  EXPECT_EQ(backend.device->make_stopwatch()->take_seconds(), 0);
}

TEST_F(GpuDevice, RangesNest) {
  const Backend backend = make_backend("cuda");
  const DeviceRange outer(*backend.device, "outer");
  const DeviceRange inner(*backend.device, "inner");
  backend.device->synchronize();
}

TEST_F(GpuDevice, WhatItTellsOfItsHealthIsPossible) {
  const Backend backend = make_backend("cuda");
  const auto health = backend.device->health();
  if (!health) GTEST_SKIP() << "no NVML here";
  EXPECT_TRUE(health->utilisation.value_or(0) >= 0 && health->utilisation.value_or(0) <= 1);
  EXPECT_GE(health->power_w.value_or(1), 1);
  EXPECT_LE(health->power_w.value_or(1), 3000);
  EXPECT_GE(health->temperature_c.value_or(20), 1);
  EXPECT_LE(health->temperature_c.value_or(20), 150);
}

TEST(Nvml, TellsNothingWhereItsLibraryIsMissing) {
  EXPECT_FALSE(cuda::Nvml("0000:00:00.0", "libno-such-library.so.1").health().has_value());
}

TEST(Nvml, TellsNothingWhereALibraryHasNoneOfItsFunctions) {
  EXPECT_FALSE(cuda::Nvml("0000:00:00.0", "libc.so.6").health().has_value());
}

TEST(Nvml, NamesTheReasonsOfSlowClocks) {
  EXPECT_EQ(cuda::throttle_reasons(0x44),
            (std::vector<std::string>{"power_cap", "hardware_thermal"}));
}

TEST(Nvml, AnIdleGpuHasNoReasonToBeSlow) {
  EXPECT_TRUE(cuda::throttle_reasons(0x1).empty());
}

}  // namespace
}  // namespace nsa::test
