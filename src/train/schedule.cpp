#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/device.h"
#include "config/stages.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"

namespace nsa {
namespace {

// Tokens of an automatic micro-batch, at most (a lone sequence may be longer): past them matmuls
// gain little and activations only cost memory.
constexpr std::int64_t kMicroBatchTokens = 4096;
constexpr std::int64_t kGpuMicroBatchTokens = 16384;

/// The most sequences that divide `sequences` and stay inside `tokens`.
std::int64_t auto_micro_batch(std::int64_t sequences, std::int64_t seq_len, std::int64_t tokens) {
  for (std::int64_t size = std::min(sequences, tokens / seq_len); size > 1; --size) {
    if (sequences % size == 0) return size;
  }
  return 1;
}

/// Steps of the run.
std::int64_t count_steps(const Config& config, const std::vector<std::int64_t>& first_steps,
                         std::int64_t epoch_tokens) {
  const TrainConfig& train = config.train;
  if (train.steps) return *train.steps;
  std::int64_t tokens = 0;
  if (train.tokens) {
    tokens = *train.tokens;
  } else {
    check(train.epochs.has_value(), "a schedule needs train.steps, train.tokens or train.epochs");
    check(epoch_tokens > 0, "train.epochs needs the tokens of an epoch");
    tokens =
        static_cast<std::int64_t>(std::ceil(*train.epochs * static_cast<double>(epoch_tokens)));
  }
  return first_step_at(config.schedule.stages, first_steps, tokens);
}

/// What is left of the learning rate at `progress` (0 to 1) of its decay, before min_ratio.
double remaining(DecayShape shape, double progress) {
  switch (shape) {
    case DecayShape::kSqrt:
      return 1 - std::sqrt(progress);
    case DecayShape::kCosine:
      return (1 + std::cos(std::numbers::pi * progress)) / 2;
    case DecayShape::kLinear:
      break;
  }
  return 1 - progress;
}

DecayShape decay_shape(const LrConfig& lr) {
  switch (lr.kind) {
    case LrKind::kWsd:
      return lr.shape;
    case LrKind::kCosine:
      return DecayShape::kCosine;
    default:
      return DecayShape::kLinear;
  }
}

}  // namespace

std::int64_t micro_batch_of(const StageConfig& stage, bool on_gpu) {
  const std::int64_t given = stage.micro_batch.value_or(1);
  const std::int64_t unit = stage.seq_len * given;
  if (stage.tokens_per_step % unit != 0) {
    fail_config(
        fmt::format("tokens_per_step is {}; it must be a multiple of {} ({} sequences of "
                    "{} tokens). Try {}.",
                    stage.tokens_per_step, unit, given, stage.seq_len,
                    nearest_multiples(stage.tokens_per_step, unit)));
  }
  if (stage.micro_batch) return given;
  return auto_micro_batch(stage.tokens_per_step / stage.seq_len, stage.seq_len,
                          on_gpu ? kGpuMicroBatchTokens : kMicroBatchTokens);
}

Schedule::Schedule(const Config& config, std::int64_t epoch_tokens) : config_(config) {
  const std::vector<StageConfig>& stages = config.schedule.stages;
  check(!stages.empty() && stages.front().from.count == 0, "the first stage must begin at 0");
  const std::vector<std::int64_t> first_steps = stage_first_steps(stages);
  check(std::is_sorted(first_steps.begin(), first_steps.end(), std::less_equal<>()),
        "each stage must begin after the one before it");
  steps_ = count_steps(config, first_steps, epoch_tokens);

  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (first_steps[i] >= steps_) {
      log::warn(fmt::format(
          "schedule.stages[{}] would begin after step {}, but the run ends with step {}: left "
          "out{}",
          i, first_steps[i], steps_, i + 1 < stages.size() ? " with all that follow it" : ""));
      break;
    }
    const bool last = i + 1 == stages.size() || first_steps[i + 1] >= steps_;
    stages_.push_back({.first_step = first_steps[i],
                       .end_step = last ? steps_ : first_steps[i + 1],
                       .config = stages[i],
                       .micro_batch = micro_batch_of(stages[i], runs_on_gpu(config)),
                       .geometry = geometry_of(config.attention, stages[i].rate)});
  }

  const StepsOrTokens& warmup = config.schedule.lr.warmup;
  warmup_steps_ =
      warmup.in_tokens ? first_step_at(stages, first_steps, warmup.count) : warmup.count;
  if (warmup_steps_ >= steps_) {
    log::warn(
        fmt::format("schedule.lr.warmup takes {} steps, but the run has {}: all of it warms "
                    "up, nothing decays",
                    warmup_steps_, steps_));
    warmup_steps_ = steps_;
  }
}

std::int64_t Schedule::stage_of(std::int64_t step) const {
  check(step >= 0 && step < steps_, "a step of the schedule is in [0, steps())");
  std::int64_t stage = 0;
  while (stages_[static_cast<std::size_t>(stage)].end_step <= step) ++stage;
  return stage;
}

std::int64_t Schedule::tokens_before(std::int64_t step) const {
  std::int64_t tokens = 0;
  for (const StageSpan& span : stages_) {
    const std::int64_t done = std::min(step, span.end_step) - span.first_step;
    if (done > 0) tokens += done * span.config.tokens_per_step;
  }
  return tokens;
}

std::int64_t Schedule::total_tokens() const {
  return tokens_before(steps_);
}

std::int64_t Schedule::page() const {
  std::int64_t page = 0;
  // Stages past the end count too: a shorter run reads its data in the order of the longer one.
  for (const StageConfig& stage : config_.schedule.stages) page = std::max(page, stage.seq_len);
  return page;
}

double Schedule::learning_rate(std::int64_t step) const {
  const LrConfig& lr = config_.schedule.lr;
  const StageSpan& span = stages_[static_cast<std::size_t>(stage_of(step))];
  double factor = 1;
  if (step < warmup_steps_) {
    factor = static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  } else if (lr.kind != LrKind::kConstant) {
    std::int64_t first = warmup_steps_;  // of the decay
    if (lr.kind == LrKind::kWsd) {
      const auto tail = std::llround(lr.decay * static_cast<double>(steps_));
      first = std::max(first, steps_ - std::max<std::int64_t>(tail, 1));
    }
    // The step before the first one still has the whole rate, the last step has min_ratio.
    const std::int64_t whole = std::max<std::int64_t>(first - 1, 0);
    if (step > whole) {
      const double progress =
          static_cast<double>(step - whole) / static_cast<double>(steps_ - 1 - whole);
      factor = lr.min_ratio + (1 - lr.min_ratio) * remaining(decay_shape(lr), progress);
    }
  }
  const std::int64_t in_stage = step - span.first_step;
  if (in_stage < span.config.rewarm) {
    const double climbed =
        static_cast<double>(in_stage + 1) / static_cast<double>(span.config.rewarm);
    factor *= lr.min_ratio + (1 - lr.min_ratio) * climbed;
  }
  return config_.optim.lr * factor;
}

StepPlan Schedule::at(std::int64_t step) const {
  const std::int64_t stage = stage_of(step);
  const StageSpan& span = stages_[static_cast<std::size_t>(stage)];
  return {.step = step,
          .stage = stage,
          .first_of_stage = step == span.first_step,
          .learning_rate = learning_rate(step),
          .seq_len = span.config.seq_len,
          .tokens_per_step = span.config.tokens_per_step,
          .micro_batch = span.micro_batch,
          .micro_batches = span.config.tokens_per_step / (span.micro_batch * span.config.seq_len),
          .tokens_before = tokens_before(step),
          .geometry = span.geometry};
}

}  // namespace nsa
