#pragma once

// Rotations of RoPE (ops/rope_spec.h): frequencies, one position's cosines and sines, one row.

#include <cmath>
#include <cstdint>

#include "ops/rope_spec.h"

namespace nsa::cpu {

/// frequency[c] = base^(-2c / rotary_dim) for c < rotary_dim / 2.
inline void rope_frequencies(const RopeSpec& rope, double* frequency) {
  const auto dim = static_cast<double>(rope.rotary_dim);
  for (std::int64_t c = 0; c < rope.rotary_dim / 2; ++c) {
    frequency[c] = std::pow(rope.base, -2.0 * static_cast<double>(c) / dim);
  }
}

/// The turn at `position`: [half] cosines and then [half] sines, half = rotary_dim / 2. Computed in
/// double, for float loses whole turns at far positions, and rounded once.
template <class T>
void rope_turn(const double* frequency, std::int64_t half, double position, T* turn) {
  for (std::int64_t c = 0; c < half; ++c) {
    const double angle = position * frequency[c];
    turn[c] = static_cast<T>(std::cos(angle));
    turn[half + c] = static_cast<T>(std::sin(angle));
  }
}

/// y = x turned; y may be x. Only the first 2 * half channels are read and written.
template <class T>
void rotate_row(const T* x, T* y, std::int64_t half, const T* turn) {
  for (std::int64_t c = 0; c < half; ++c) {
    const T first = x[c];
    const T second = x[half + c];
    y[c] = first * turn[c] - second * turn[half + c];
    y[half + c] = second * turn[c] + first * turn[half + c];
  }
}

/// y = x turned back: the inverse, which is also the transpose and so the backward of rotate_row.
template <class T>
void unrotate_row(const T* x, T* y, std::int64_t half, const T* turn) {
  for (std::int64_t c = 0; c < half; ++c) {
    const T first = x[c];
    const T second = x[half + c];
    y[c] = first * turn[c] + second * turn[half + c];
    y[half + c] = second * turn[c] - first * turn[half + c];
  }
}

}  // namespace nsa::cpu
