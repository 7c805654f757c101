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

TEST(Bf16AtRandom, KeepsWhatIsABf16) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = from_bf16(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xFFFFU}) {
      EXPECT_EQ(to_bf16_at_random(value, random), bits);
    }
  }
}

TEST(Bf16AtRandom, GoesUpAsOftenAsTheValueIsNearTheUpperNeighbour) {
  const float low = 1.0F;
  const float high = 1.0078125F;
  for (const double part : {0.25, 0.5, 0.9375}) {
    const auto value = static_cast<float>(low + part * (static_cast<double>(high) - low));
    std::int64_t ups = 0;
    for (std::uint32_t random = 0; random < 0x10000U; ++random) {
      const float rounded = from_bf16(to_bf16_at_random(value, random));
      ASSERT_TRUE(rounded == low || rounded == high);
      EXPECT_EQ(from_bf16(to_bf16_at_random(-value, random)), -rounded);
      ups += rounded == high ? 1 : 0;
    }
    EXPECT_EQ(static_cast<double>(ups), part * 0x10000);
  }
}

TEST(Bf16AtRandom, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(from_bf16(to_bf16_at_random(infinity, 0xFFFFU)), infinity);
  EXPECT_EQ(from_bf16(to_bf16_at_random(-infinity, 0xFFFFU)), -infinity);
  EXPECT_TRUE(
      std::isnan(from_bf16(to_bf16_at_random(std::numeric_limits<float>::quiet_NaN(), 0xFFFFU))));
}

}  // namespace
}  // namespace nsa
