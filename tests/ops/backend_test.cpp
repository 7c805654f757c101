#include "ops/backend.h"

#include <string>

#include <gtest/gtest.h>

namespace nsa {
namespace {

ExitCode code_of(const std::string& device) {
  try {
    make_backend(device, 1);
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kDone;
}

TEST(Backend, TheCpuIsAlwaysThere) {
  const Backend backend = make_backend("cpu", 2);
  EXPECT_EQ(backend.device->name(), "cpu");
  EXPECT_NE(backend.ops, nullptr);
}

TEST(Backend, UnknownDevicesAreAConfigurationError) {
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", ""}) {
    EXPECT_EQ(code_of(device), ExitCode::kConfig) << device;
  }
}

TEST(Backend, CudaIsRefusedWhereThereIsNone) {
  if (!cuda_available()) {
    EXPECT_EQ(code_of("cuda:0"), ExitCode::kConfig);
  }
}

}  // namespace
}  // namespace nsa
