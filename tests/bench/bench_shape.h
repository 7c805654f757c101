#pragma once

// What a benchmark is asked for.

#include <cstdint>

#include "core/dtype.h"
#include "ops/nsa_geometry.h"

namespace nsa::bench {

/// One sequence through one layer. Keys and values have the same head dimension.
struct BenchShape {
  std::int64_t seq = 0;  ///< tokens
  std::int64_t heads = 16;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 64;
  NsaGeometry geometry;
  DType dtype = DType::kF32;  ///< of weights and activations

  std::int64_t hidden() const { return heads * head_dim; }
};

}  // namespace nsa::bench
