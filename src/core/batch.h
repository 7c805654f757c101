#pragma once

// What one micro-step reads: tokens, targets and the bounds of the packed documents.

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace nsa {

/// Documents packed one after the other into `tokens()` rows. Every position-dependent thing
/// (RoPE, blocks, windows, causality) restarts at each document. Rows of a batch are documents too.
/// A document of length 0 is legal and yields nothing. Views: the loader owns the memory.
struct Documents {
  std::span<const std::int32_t> bounds;  ///< host, [count + 1], 0 first, non-decreasing
  Tensor device_bounds;                  ///< the same on the device, i32

  std::int64_t count() const { return static_cast<std::int64_t>(bounds.size()) - 1; }
  std::int64_t tokens() const { return bounds.back(); }
  std::int64_t begin(std::int64_t d) const { return bounds[static_cast<std::size_t>(d)]; }
  std::int64_t length(std::int64_t d) const { return begin(d + 1) - begin(d); }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::int64_t d = 0; d < count(); ++d) most = std::max(most, length(d));
    return most;
  }
};

/// The target of a row that takes no part in the loss.
constexpr std::int32_t kIgnoredTarget = -1;

struct Batch {
  Tensor tokens;                   ///< [rows] i32, on the device
  Tensor targets;                  ///< [rows] i32, kIgnoredTarget where there is none
  Documents documents;             ///< cover all rows
  std::int64_t targets_valid = 0;  ///< rows whose target is not kIgnoredTarget
};

}  // namespace nsa
