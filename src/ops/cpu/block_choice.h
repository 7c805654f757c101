#pragma once

// The top-n step of NSA for one query: which blocks it selects, given their importance.

#include <cstdint>

#include "ops/nsa_geometry.h"

namespace nsa::cpu {

/// A block that is not forced.
template <class T>
struct Candidate {
  T score = 0;
  std::int32_t block = 0;
};

/// Writes the top_n blocks of the query at t: the forced ones, then the best of `scores` (one for
/// each block up to the current one), ties to the lower index; ascending, -1 padded at the end.
/// `heap` has room for top_n candidates. O(blocks * log top_n).
template <class T>
void choose_blocks(const NsaGeometry& geometry, std::int64_t t, const T* scores, Candidate<T>* heap,
                   std::int32_t* blocks);

}  // namespace nsa::cpu
