#include "config/stages.h"

#include "core/format.h"

namespace nsa {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

}  // namespace

std::int64_t auto_rate(std::int64_t seq_len) {
  if (seq_len <= 2048) return 1;
  if (seq_len <= 8192) return 8;
  return seq_len <= 32768 ? 16 : 32;
}

std::vector<std::int64_t> stage_first_steps(const std::vector<StageConfig>& stages) {
  std::vector<std::int64_t> first_steps;
  std::int64_t tokens = 0;  // before the stage's first step
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::int64_t first = stages[i].from.count;
    if (i > 0) {
      const std::int64_t per_step = stages[i - 1].tokens_per_step;
      const std::int64_t before = first_steps.back();
      if (stages[i].from.in_tokens) first = before + ceil_div(first - tokens, per_step);
      if (first > before) tokens += (first - before) * per_step;
    }
    first_steps.push_back(first);
  }
  return first_steps;
}

std::int64_t first_step_at(const std::vector<StageConfig>& stages,
                           const std::vector<std::int64_t>& first_steps, std::int64_t tokens) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    const std::int64_t after =
        before + (first_steps[i + 1] - first_steps[i]) * stages[i].tokens_per_step;
    if (tokens <= after)
      return first_steps[i] + ceil_div(tokens - before, stages[i].tokens_per_step);
    before = after;
  }
  return first_steps.back() + ceil_div(tokens - before, stages.back().tokens_per_step);
}

std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  return below == 0 ? fmt::format("{} or {}", unit, 2 * unit)
                    : fmt::format("{} or {}", below, below + unit);
}

}  // namespace nsa
