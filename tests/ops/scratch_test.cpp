#include "ops/cpu/scratch.h"

#include <gtest/gtest.h>

namespace nsa::cpu {
namespace {

constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;

TEST(Scratch, FramesGiveBackWhatTheyTook) {
  const auto device = make_cpu_device();
  Scratch scratch(*device);
  const char* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    Scratch::Frame frame(scratch);
    const char* taken = frame.take<char>(3 * kMegabyte);
    if (i == 0) first = taken;
    EXPECT_EQ(taken, first);
  }
}

TEST(Scratch, AddressesStayWhenItGrows) {
  const auto device = make_cpu_device();
  Scratch scratch(*device);
  Scratch::Frame frame(scratch);
  char* small = frame.take<char>(10);
  small[9] = 'x';
  frame.take<char>(5 * kMegabyte)[0] = 'y';
  EXPECT_EQ(small[9], 'x');
}

TEST(Scratch, AnIdleWorkerIsGivenWhatAnotherNeeded) {
  const auto device = make_cpu_device();
  Scratch busy(*device);
  Scratch idle(*device);
  Scratch::Frame caller(idle);
  caller.take<char>(kMegabyte / 2);
  busy.begin_loop();
  idle.begin_loop();
  { Scratch::Frame(busy).take<char>(4 * kMegabyte); }
  EXPECT_GE(busy.loop_need(), 4 * kMegabyte);
  idle.provide(busy.loop_need());
  const std::int64_t before = device->allocations();
  Scratch::Frame body(idle);
  body.take<char>(4 * kMegabyte);
  EXPECT_EQ(device->allocations(), before);
}

}  // namespace
}  // namespace nsa::cpu
