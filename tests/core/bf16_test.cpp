#include "core/bf16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(Bf16, WidensEveryFiniteNumberBackToItself) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = from_bf16(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(to_bf16(value), bits);
    }
  }
}

TEST(Bf16, RoundsToTheNearest) {
  EXPECT_EQ(from_bf16(to_bf16(1.003F)), 1.0F);
  EXPECT_EQ(from_bf16(to_bf16(1.005F)), 1.0078125F);
  EXPECT_EQ(from_bf16(to_bf16(-1.005F)), -1.0078125F);
}

TEST(Bf16, RoundsTiesToEven) {
  EXPECT_EQ(from_bf16(to_bf16(1.00390625F)), 1.0F);       // between 1 and 1.0078125
  EXPECT_EQ(from_bf16(to_bf16(1.01171875F)), 1.015625F);  // between 1.0078125 and 1.015625
}

TEST(Bf16, OverflowsToInfinity) {
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Bf16, KeepsNan) {
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace nsa
