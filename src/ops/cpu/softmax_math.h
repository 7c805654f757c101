#pragma once

// The inner loops of attention over one row of scores. They see most of the elements of a training
// step, so exp here is shorter than fast_exp: its argument is a score minus the largest of the row
// or minus lse, hence never far above 0.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace nsa::cpu {

/// e^x for x <= 88 within 2 ulp; 0 below -87 (where fp32 has hardly a normal number left) and for
/// -inf; NaN for NaN. 2^n * e^r with n = round(x / ln 2); the polynomial of e^r, 1 + r + r^2 times
/// the interpolation of (e^r - 1 - r) / r^2 in the 5 Chebyshev nodes of |r| <= ln(2) / 2, is exact
/// to 1.1e-8.
inline float exp_of_score(float x) {
  constexpr float kLog2E = 1.44269504F;
  // ln 2 in two parts, the first short enough that n times it is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 leaves round(z) in the low bits of the sum; those bits, shifted to the
  // exponent's place, drop the rest.
  constexpr float kRounder = 12582912.0F;
  constexpr float kSmallest = -87.0F;
  const float shifted = x * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 0.0013926250F;
  p = p * r + 0.0083632329F;
  p = p * r + 0.041666552F;
  p = p * r + 0.16666576F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  p *= std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23U);
  return x < kSmallest ? 0.0F : p;
}
inline double exp_of_score(double x) {
  return std::exp(x);
}

/// Independent partial results of a reduction: enough to hide the latency of the operation. The
/// order of a sum depends on its length alone.
constexpr std::size_t kPartials = 32;

/// Combines the partial results pairwise.
template <class T, class Combine>
T fold(std::array<T, kPartials>& partial, const Combine& combine) {
  for (std::size_t half = kPartials / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) partial[i] = combine(partial[i], partial[i + half]);
  }
  return partial[0];
}

/// -inf where count is 0. NaNs may be passed over: the sum of exponentials shows them.
template <class T>
T largest_score(const T* s, std::int64_t count) {
  const auto larger = [](T a, T b) { return a < b ? b : a; };
  std::array<T, kPartials> partial;
  partial.fill(-std::numeric_limits<T>::infinity());
  const std::int64_t whole = count - count % static_cast<std::int64_t>(kPartials);
  for (std::int64_t i = 0; i < whole; i += static_cast<std::int64_t>(kPartials)) {
    for (std::size_t lane = 0; lane < kPartials; ++lane) {
      partial[lane] = larger(partial[lane], s[i + static_cast<std::int64_t>(lane)]);
    }
  }
  T most = fold(partial, larger);
  for (std::int64_t i = whole; i < count; ++i) most = larger(most, s[i]);
  return most;
}

/// s[i] = e^(s[i] - shift); returns their sum.
template <class T>
T exponentiate(T* s, std::int64_t count, T shift) {
  std::array<T, kPartials> partial{};
  const std::int64_t whole = count - count % static_cast<std::int64_t>(kPartials);
  for (std::int64_t i = 0; i < whole; i += static_cast<std::int64_t>(kPartials)) {
    for (std::size_t lane = 0; lane < kPartials; ++lane) {
      const T p = exp_of_score(s[i + static_cast<std::int64_t>(lane)] - shift);
      s[i + static_cast<std::int64_t>(lane)] = p;
      partial[lane] += p;
    }
  }
  T total = fold(partial, [](T a, T b) { return a + b; });
  for (std::int64_t i = whole; i < count; ++i) {
    s[i] = exp_of_score(s[i] - shift);
    total += s[i];
  }
  return total;
}

/// What turns a row of scores into gradients.
template <class T>
struct RowGradient {
  T lse = 0, gate = 1, delta = 0;

  /// In place: scores s become gate * p and products dp = <dout, v> become
  /// p * (gate * dp - delta), with p = e^(s - lse).
  void apply(T* __restrict s, T* __restrict dp, std::int64_t count) const {
    const T shift = lse;
    const T up = gate;
    const T down = delta;
    for (std::int64_t i = 0; i < count; ++i) {
      const T p = exp_of_score(s[i] - shift);
      dp[i] = p * (up * dp[i] - down);
      s[i] = p * up;
    }
  }
};

}  // namespace nsa::cpu
