#pragma once

// The parts of a projection row, as the kernels of both directions see them.

#include <cstdint>
#include <vector_types.h>

#include "kernels/common/documents.h"

namespace nsa::cuda {

/// Where columns of the projection come from or go to: all heads of one tensor.
template <class T>
struct SplitPart {
  std::int64_t column;  ///< first of it in a projection row
  std::int32_t heads;
  std::int32_t dim;        ///< channels of a head
  const T* norm;           ///< [dim] weight of the QK-norm, or null
  std::int32_t norm_slot;  ///< which of [q, k0, k1, k2] the norm is
  std::int32_t sources;    ///< tensors below; forward: 1 or more copies, backward: summands
  T* tensor[3];            ///< [tokens, heads, dim]
  bool turns[3];
};

constexpr int kMostParts = 8;  // q, three pairs, gates

template <class T>
struct SplitLayout {
  SplitPart<T> parts[kMostParts];
  std::int32_t count;
  std::int32_t rows;     ///< heads of all parts: what a token has to do
  std::int64_t columns;  ///< of a projection row
  std::int64_t tokens;
  std::int32_t half;    ///< half of the channels that turn
  const float2* turns;  ///< by position, [.., half]
  DocumentView documents;
  float eps;
  bool normalises;
};

}  // namespace nsa::cuda
