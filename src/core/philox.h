#pragma once

// Counter-based random numbers: value = f(key, counter), so the same weights, data order and
// samples come out on any device, any number of ranks and after any resume.

#include <array>
#include <cmath>
#include <cstdint>

namespace nsa {

/// Philox4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                              std::uint64_t counter_low) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32U),
      static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32U)};
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ key0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ key1, static_cast<std::uint32_t>(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// Uniform in (0, 1): never 0, so its logarithm is finite.
constexpr double uniform_open(std::uint32_t bits) {
  return (static_cast<double>(bits) + 0.5) * (1.0 / 4294967296.0);
}

/// Element `index` of an endless stream of N(0, 1) that (key, stream) names. Box-Muller.
inline double philox_normal(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const auto bits = philox(key, stream, index / 2);
  const double radius = std::sqrt(-2.0 * std::log(uniform_open(bits[0])));
  const double angle = kTwoPi * uniform_open(bits[1]);
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace nsa
