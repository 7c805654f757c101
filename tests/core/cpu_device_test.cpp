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

}  // namespace
}  // namespace nsa
