#pragma once

// bf16 on the host: the upper half of a float. Only conversions; nothing computes with it here.

#include <bit>
#include <cstdint>

namespace nsa {

/// The bits of `value` rounded to the nearest bf16, ties to even. NaN stays NaN.
constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  if ((bits & kMagnitude) > kInfinity) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// The bits of `value` rounded to one of its two neighbours in bf16: up in magnitude when `random`
/// (16 bits) is at or above 65536 less the part of the way that the value is from the lower one.
/// The mean over all `random` is the value. What is not finite, or is a bf16 already, stays.
constexpr std::uint16_t to_bf16_at_random(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kExponent = 0x7F800000U;
  if ((bits & kExponent) == kExponent) return to_bf16(value);
  return static_cast<std::uint16_t>((bits + (random & 0xFFFFU)) >> 16U);
}

/// Exact.
constexpr float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace nsa
