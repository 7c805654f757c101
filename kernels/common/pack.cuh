#pragma once

// Several adjacent elements at once: what a thread loads and stores.

#include <cstdint>

#include "kernels/common/types.cuh"

namespace nsa::cuda {

/// kWidth elements, aligned to their size: one memory access.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[kWidth]) {
  const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = to_float(pack.at[i]);
}

template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[kWidth]) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

/// Calls body.template operator()<kWidth>() with 16 bytes of T where rows of `columns` elements
/// stay aligned to them, else with 1.
template <class T, class Body>
void with_width(std::int64_t columns, Body&& body) {
  constexpr int kWidest = 16 / sizeof(T);
  if (columns % kWidest == 0) {
    body.template operator()<kWidest>();
  } else {
    body.template operator()<1>();
  }
}

}  // namespace nsa::cuda
