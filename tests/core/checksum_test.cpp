#include "core/checksum.h"

#include <string>

#include <gtest/gtest.h>

namespace nsa {
namespace {

// The check value that every description of CRC-32 (IEEE 802.3) gives.
TEST(Checksum, MatchesTheCheckValue) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(0, text.data(), 9), 0xCBF43926U);
}

TEST(Checksum, GoesOnWhereItStopped) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(crc32(0, text.data(), 4), text.data() + 4, 5), 0xCBF43926U);
}

TEST(Checksum, OfNothingIsZero) {
  EXPECT_EQ(crc32(0, nullptr, 0), 0U);
}

}  // namespace
}  // namespace nsa
