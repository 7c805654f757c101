#pragma once

// Rotary position embedding, as ops that rotate need to know it.

#include <cstdint>

namespace nsa {

/// Half-split convention on the first `rotary_dim` channels: the pair (c, c + rotary_dim / 2) turns
/// by position * base^(-2c / rotary_dim); channels from rotary_dim on are untouched. Positions are
/// local to the document. Angles, sines and cosines are computed in double.
struct RopeSpec {
  std::int64_t rotary_dim = 0;  ///< even, at most the head dim; 0 = no rotation
  double base = 10000.0;
};

}  // namespace nsa
