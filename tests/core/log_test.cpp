#include "core/log.h"

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(Log, AMessageStaysOneLineOfPlainCharacters) {
  testing::internal::CaptureStderr();
  log::error("is \"a\nb\x1b[31m\"");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: is \"a\\nb\\x1b[31m\"\n");
}

}  // namespace
}  // namespace nsa
