// What the GPU tells about its work and itself.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "core/buffer.h"
#include "kernels/cuda_device.h"
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

/// As many as some micro-batches upload: the host must not be kept until the work before is done.
TEST_F(GpuDevice, SmallCopiesFromTheHostDoNotWaitForTheWorkBeforeThem) {
  cuda::CudaDevice device(0);
  constexpr std::int64_t kCount = 100000;
  constexpr int kCopies = 24;
  const Buffer target(device, kCopies * kCount * 4);
  std::vector<std::int32_t> numbers(kCount);
  const auto upload_all = [&](std::int32_t first) {
    for (int copy = 0; copy < kCopies; ++copy) {
      std::fill(numbers.begin(), numbers.end(), first + copy);  // the last copy may still be queued
      device.copy_from_host(static_cast<std::int32_t*>(target.data()) + copy * kCount,
                            numbers.data(), kCount * 4);
    }
  };
  upload_all(0);  // pins the buffers
  upload_all(0);
  device.synchronize();
  const Buffer large(device, std::int64_t{4} << 30);
  for (int i = 0; i < 300; ++i) device.fill_zero(large.data(), large.bytes());  // some 0.3 s
  upload_all(1000);
  EXPECT_EQ(cudaStreamQuery(device.stream()), cudaErrorNotReady);
  std::vector<std::int32_t> found(kCopies * kCount);
  device.copy_to_host(found.data(), target.data(), target.bytes());
  for (int copy = 0; copy < kCopies; ++copy) {
    EXPECT_EQ(found[static_cast<std::size_t>(copy * kCount)], 1000 + copy);
    EXPECT_EQ(found[static_cast<std::size_t>((copy + 1) * kCount - 1)], 1000 + copy);
  }
}

/// Copies of more than the pinned buffers hold at a time arrive whole and in order.
TEST_F(GpuDevice, LargeCopiesArrive) {
  const Backend backend = make_backend("cuda");
  std::vector<std::int32_t> numbers(std::size_t{20} << 20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  const auto bytes = static_cast<std::int64_t>(numbers.size()) * 4;
  for (const bool on_host : {false, true}) {
    Device& device = on_host ? backend.device->host_memory() : *backend.device;
    const Buffer target(device, bytes);
    device.fill_zero(target.data(), bytes);
    device.copy_from_host(target.data(), numbers.data(), bytes);
    std::vector<std::int32_t> found(numbers.size());
    device.copy_to_host(found.data(), target.data(), bytes);
    EXPECT_EQ(found, numbers);
  }
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
