#pragma once

// The stages of a schedule: where they begin and what `rate: auto` stands for.

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace nsa {

/// The rate for a context of `seq_len` tokens: up to 2048: 1, up to 8192: 8, up to 32768: 16,
/// above: 32.
std::int64_t auto_rate(std::int64_t seq_len);

/// The 0-based first step of each stage, the last one open-ended. A stage whose `from` is in tokens
/// begins with the first step that starts at or after that count. Not above its predecessor's
/// where the froms do not increase.
std::vector<std::int64_t> stage_first_steps(const std::vector<StageConfig>& stages);

/// The first step that starts at or after `tokens` tokens. `first_steps` increase strictly from 0.
std::int64_t first_step_at(const std::vector<StageConfig>& stages,
                           const std::vector<std::int64_t>& first_steps, std::int64_t tokens);

/// "4096 or 8192": the two multiples of `unit` (positive) nearest to `value`, none of them 0.
std::string nearest_multiples(std::int64_t value, std::int64_t unit);

}  // namespace nsa
