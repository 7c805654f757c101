#include <chrono>

#include <gtest/gtest.h>

#include "core/device.h"
#include "core/error.h"

namespace nsa {
namespace {

TEST(CpuDevice, RefusesMoreThanTheMachineHas) {
  // The system would promise 16 TiB of untouched pages, and kill the program that touches them.
  const auto device = make_cpu_device();
  try {
    device->allocate(std::int64_t{1} << 44);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRuntime);
    EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(CpuStopwatch, AddsUpItsIntervalsAndNothingBetweenThem) {
  const auto device = make_cpu_device();
  const auto watch = device->make_stopwatch();
  double longest = 0;  // what the intervals can have taken, at most
  for (int i = 0; i < 3; ++i) {
    const double begin = now_seconds();
    watch->start();
    // As long as it takes for the clock to move.
    while (now_seconds() == begin) continue;
    watch->stop();
    longest += now_seconds() - begin;
  }
  const double taken = watch->take_seconds();
  EXPECT_GT(taken, 0);
  EXPECT_LE(taken, longest);
}

TEST(CpuStopwatch, StartsAtZeroAgainOnceItIsRead) {
  const auto device = make_cpu_device();
  const auto watch = device->make_stopwatch();
  watch->start();
  watch->stop();
  watch->take_seconds();
  EXPECT_EQ(watch->take_seconds(), 0);
}

TEST(CpuDevice, HasNothingToTellOfItsHealth) {
  EXPECT_FALSE(make_cpu_device()->health().has_value());
}

}  // namespace
}  // namespace nsa
