#pragma once

// The loss by how much context a token has: by its position in its sequence (under data.doc_mask,
// in its document).

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"

namespace nsa {

/// Tokens at positions [from, to).
struct PositionBucket {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double loss = 0;          ///< nats per valid token
  std::int64_t tokens = 0;  ///< valid targets
};

class PositionLoss {
 public:
  /// The buckets of sequences of `seq_len` tokens: the last half, the quarter before, and so on
  /// down to a thirty-second part, which goes to the start.
  explicit PositionLoss(std::int64_t seq_len);

  /// Adds the rows of a batch: losses in nats, and targets, of which kIgnoredTarget does not count.
  void add(const Documents& documents, std::span<const std::int32_t> targets,
           std::span<const float> losses);
  /// Those with any token, from the start on.
  std::vector<PositionBucket> buckets() const;

 private:
  std::vector<PositionBucket> sums_;  ///< `loss` is the sum until buckets() divides it
};

}  // namespace nsa
