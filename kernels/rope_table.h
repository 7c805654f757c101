#pragma once

// Cosines and sines of the turns of RoPE, by position.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/buffer.h"
#include "core/device.h"
#include "ops/rope_spec.h"

namespace nsa::cuda {

/// Made once for a base and a width and kept; made again when a longer document comes. Angles in
/// fp64, rounded once: position 131,071 turns as exactly as position 1.
class RopeTable {
 public:
  RopeTable(Device& device, cudaStream_t stream) : device_(&device), stream_(stream) {}

  /// [at least `positions`, rotary_dim / 2] pairs (cosine, sine); null where nothing turns.
  const float2* turns(const RopeSpec& rope, std::int64_t positions);

 private:
  Device* device_;
  cudaStream_t stream_;
  Buffer memory_;
  RopeSpec rope_;
  std::int64_t positions_ = 0;
};

}  // namespace nsa::cuda
