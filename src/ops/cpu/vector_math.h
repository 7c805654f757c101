#pragma once

// Loops that the compiler turns into vector code without -ffast-math (the flags of nsa_ops
// suffice): exp, and reductions with a
// fixed number of partial results, so the order of a sum depends on its length alone.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace nsa::cpu {

/// e^x within 2 ulp; 0 for -inf, inf above the range, NaN for NaN. Branch-free, so that loops over
/// it vectorise: 2^n * e^r with n = round(x / ln 2) and the Taylor series of e^r to r^7, whose
/// remainder is under 0.1 ulp for |r| <= ln(2) / 2.
inline float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504F;
  // ln 2 in two parts, the first short enough that n times it is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 leaves round(z) in the low bits of the sum.
  constexpr float kRounder = 12582912.0F;
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  const float shifted = x * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  // 2^n in two factors: n runs from -150 to 128, beyond the exponents of one float.
  const std::uint32_t biased =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRounder) + 256U;
  const std::uint32_t half = biased >> 1U;
  const auto scale = [](std::uint32_t e) { return std::bit_cast<float>((e - 128U + 127U) << 23U); };
  return p * scale(half) * scale(biased - half);
}
inline double fast_exp(double x) {
  return std::exp(x);
}

/// x / (1 + e^-x) is silu(x); this is the second factor.
template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + fast_exp(-x));
}

constexpr std::int64_t kLanes = 16;

/// Sum over i of term(i), in kLanes partial sums that are added in order.
template <class T, class Term>
T lane_sum(std::int64_t count, Term&& term) {
  std::array<T, kLanes> lanes{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<std::size_t>(lane)] += term(i + lane);
    }
  }
  T total = 0;
  for (const T& lane : lanes) total += lane;
  for (std::int64_t i = whole; i < count; ++i) total += term(i);
  return total;
}

template <class T>
T sum_of(const T* x, std::int64_t count) {
  return lane_sum<T>(count, [x](std::int64_t i) { return x[i]; });
}

template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  return lane_sum<T>(count, [a, b](std::int64_t i) { return a[i] * b[i]; });
}

/// -inf where count is 0. NaNs may be passed over: sums made with the result show them.
template <class T>
T max_of(const T* x, std::int64_t count) {
  std::array<T, kLanes> lanes;
  lanes.fill(-std::numeric_limits<T>::infinity());
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      T& most = lanes[static_cast<std::size_t>(lane)];
      most = x[i + lane] > most ? x[i + lane] : most;
    }
  }
  T most = lanes[0];
  for (const T& lane : lanes) most = std::max(most, lane);
  for (std::int64_t i = whole; i < count; ++i) most = std::max(most, x[i]);
  return most;
}

/// x[i] = e^(x[i] - shift), and returns their sum. A shift of -inf is a caller's mistake.
template <class T>
T exp_and_sum(T* x, std::int64_t count, T shift) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = fast_exp(x[i] - shift);
  return sum_of(x, count);
}

/// y += scale * x
template <class T>
void add_scaled(T* y, T scale, const T* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

}  // namespace nsa::cpu
