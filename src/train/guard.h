#pragma once

// NonFiniteGuard: decides, before the weights are touched, whether a step may update them.

#include <cmath>
#include <cstdint>

#include "config/config.h"

namespace nsa {

enum class Verdict : std::uint8_t { kUpdate, kSkip, kStop };

/// Counts the steps it skipped over the whole run; past guard.max_skips it stops.
class NonFiniteGuard {
 public:
  NonFiniteGuard(const GuardConfig& config, std::int64_t skipped)
      : skips_(config.on_nonfinite == "skip"), max_skips_(config.max_skips), skipped_(skipped) {}

  /// `loss`: mean over valid targets; `norm`: of the whole gradient.
  Verdict judge(double loss, double norm) {
    if (std::isfinite(loss) && std::isfinite(norm)) return Verdict::kUpdate;
    if (!skips_ || skipped_ >= max_skips_) return Verdict::kStop;
    ++skipped_;
    return Verdict::kSkip;
  }
  std::int64_t skipped() const { return skipped_; }

 private:
  bool skips_;
  std::int64_t max_skips_;
  std::int64_t skipped_;
};

}  // namespace nsa
