#include "train/position_loss.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace nsa {
namespace {

constexpr std::int64_t kFinest = 32;  ///< parts of a sequence

}  // namespace

PositionLoss::PositionLoss(std::int64_t seq_len) {
  std::int64_t from = 0;
  for (std::int64_t parts = kFinest; parts >= 1; parts /= 2) {
    const std::int64_t to = seq_len / parts;
    if (to <= from) continue;
    sums_.push_back({.from = from, .to = to});
    from = to;
  }
}

void PositionLoss::add(const Documents& documents, std::span<const std::int32_t> targets,
                       std::span<const float> losses) {
  check(targets.size() == losses.size() &&
            static_cast<std::int64_t>(losses.size()) == documents.tokens(),
        "PositionLoss: a loss and a target for each row");
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    auto bucket = sums_.begin();
    for (std::int64_t position = 0; position < documents.length(d); ++position) {
      while (position >= bucket->to && bucket + 1 != sums_.end()) ++bucket;
      const auto row = static_cast<std::size_t>(documents.begin(d) + position);
      if (targets[row] == kIgnoredTarget) continue;
      bucket->loss += static_cast<double>(losses[row]);
      ++bucket->tokens;
    }
  }
}

std::vector<PositionBucket> PositionLoss::buckets() const {
  std::vector<PositionBucket> found;
  std::copy_if(sums_.begin(), sums_.end(), std::back_inserter(found),
               [](const PositionBucket& bucket) { return bucket.tokens > 0; });
  for (PositionBucket& bucket : found) bucket.loss /= static_cast<double>(bucket.tokens);
  return found;
}

}  // namespace nsa
