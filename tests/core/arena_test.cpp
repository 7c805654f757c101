#include "core/arena.h"

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(Arena, MeasuringAndUsingAgree) {
  const auto walk = [](Arena& arena) {
    arena.take(DType::kF32, {3, 5});
    const std::int64_t mark = arena.mark();
    arena.take(DType::kF64, {100});
    arena.rewind(mark);
    arena.take(DType::kI32, {7});
    return arena.high_water();
  };
  Arena plan = Arena::measuring();
  const std::int64_t bytes = walk(plan);
  const auto device = make_cpu_device();
  Arena arena(*device, bytes);
  EXPECT_EQ(walk(arena), bytes);
}

TEST(Arena, TensorsDoNotOverlap) {
  const auto device = make_cpu_device();
  Arena arena(*device, 4096);
  const Tensor a = arena.take(DType::kF32, {5});
  const Tensor b = arena.take(DType::kF32, {5});
  EXPECT_GE(static_cast<char*>(b.data()) - static_cast<char*>(a.data()), a.bytes());
}

TEST(Arena, RefusesMoreThanItsCapacity) {
  const auto device = make_cpu_device();
  Arena arena(*device, 128);
  arena.take(DType::kF32, {32});
  EXPECT_THROW(arena.take(DType::kF32, {1}), Error);
}

TEST(Arena, AllocatesOnce) {
  const auto device = make_cpu_device();
  Arena arena(*device, 1024);
  const std::int64_t before = device->allocations();
  for (int i = 0; i < 10; ++i) {
    arena.take(DType::kF32, {64});
    arena.rewind(0);
  }
  EXPECT_EQ(device->allocations(), before);
}

TEST(Device, CountsWhatIsAllocated) {
  const auto device = make_cpu_device();
  {
    const Buffer buffer(*device, 1000);
    EXPECT_EQ(device->allocated_bytes(), 1000);
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(device->peak_bytes(), 1000);
  EXPECT_EQ(device->allocations(), 1);
}

TEST(Buffer, MovedFromIsEmpty) {
  const auto device = make_cpu_device();
  Buffer first(*device, 64);
  const Buffer second(std::move(first));
  EXPECT_EQ(device->allocated_bytes(), 64);
  EXPECT_NE(second.data(), nullptr);
}

}  // namespace
}  // namespace nsa
