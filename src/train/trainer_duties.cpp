// What a Trainer does between steps: report, evaluate, save, leave.

#include <algorithm>
#include <exception>
#include <string>

#include "config/parse.h"
#include "core/format.h"
#include "core/log.h"
#include "train/checkpoint.h"
#include "train/flops.h"
#include "train/progress.h"
#include "train/start_report.h"
#include "train/trainer.h"
#include "train/utilisation.h"

namespace nsa {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::optional<NsaRow> nsa_row(const Config& config, const StepPlan& plan) {
  if (config.attention.kind == AttentionKind::kDense) return std::nullopt;
  return NsaRow{.geometry = plan.geometry,
                .density = attention_density(plan.seq_len, plan.geometry, config.attention)};
}

/// Text on one line of the log, whatever is in it.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

}  // namespace

void Trainer::report_step(const StepReport& report) {
  const StepPlan& plan = report.plan;
  since_report_.seconds += report.seconds;
  since_report_.data_seconds += report.data_seconds;
  since_report_.tokens += plan.tokens_per_step;
  since_report_.flops += static_cast<double>(plan.tokens_per_step) *
                         training_flops(shop_.config, plan.seq_len, plan.geometry);
  const std::int64_t gpu_every = shop_.config.log.gpu_every;
  if (gpu_every > 0 && step_ % gpu_every == 0) {
    metrics_.gpu(step_, shop_.backend.device->health());
  }
  const std::int64_t every = shop_.config.log.every;
  const std::int64_t steps = shop_.schedule.steps();
  if (step_ != steps && (every == 0 || step_ % every != 0)) return;

  const double tokens_per_second =
      static_cast<double>(since_report_.tokens) / since_report_.seconds;
  const TrainRow row{
      .step = step_,
      .tokens = plan.tokens_before + plan.tokens_per_step,
      .epoch = loader_.state().epoch,
      .loss = report.loss,
      .grad_norm = report.grad_norm,
      .lr = plan.learning_rate,
      .tok_s = tokens_per_second,
      .mfu = peak_flops_ ? std::optional(since_report_.flops / since_report_.seconds / *peak_flops_)
                         : std::nullopt,
      .mem_gib = static_cast<double>(peak_memory(*shop_.backend.device)) / kGiB,
      .data_wait = since_report_.data_seconds / since_report_.seconds,
      .nsa = nsa_row(shop_.config, plan),
      .skipped = guard_.skipped()};
  since_report_ = {};
  if (!memory_told_) {
    const std::string line = peak_memory_line(shop_);
    log::info(line);
    metrics_.event(step_, "memory", line);
    memory_told_ = true;
  }
  metrics_.train(row);
  const auto tokens_left = static_cast<double>(shop_.schedule.total_tokens() - row.tokens);
  log::info(progress_line({.row = row,
                           .steps = steps,
                           .val_loss = last_loss(),
                           .seconds_left = tokens_left / tokens_per_second}));
}

StepPlan Trainer::current_plan() const {
  return shop_.schedule.at(std::clamp<std::int64_t>(step_ - 1, 0, shop_.schedule.steps() - 1));
}

std::optional<double> Trainer::last_loss() const {
  return last_validation_ ? std::optional(last_validation_->loss) : std::nullopt;
}

bool Trainer::evaluation_due() const {
  const std::int64_t every = shop_.config.eval.every;
  return evaluator_ && (step_ == shop_.schedule.steps() || (every > 0 && step_ % every == 0));
}

void Trainer::validate() {
  evaluation_pending_ = true;
  const StepPlan plan = current_plan();
  const auto found =
      evaluator_->evaluate(step_, plan, [this] { return signals_.stop_requested(); });
  if (!found) return;
  evaluation_pending_ = false;
  const Validation& validation = found->validation;
  last_validation_ = validation;
  metrics_.val(validation, found->by_position);
  log::info(
      fmt::format("validation after step {}: loss {:.4f} over {} tokens (unigram entropy "
                  "{:.4f})",
                  step_, validation.loss, validation.tokens, *shop_.data.unigram_nats()));
  print_samples(plan);
}

void Trainer::print_samples(const StepPlan& plan) {
  if (!sampler_) return;
  const auto prompts = static_cast<std::int64_t>(shop_.config.eval.sample.prompts.size());
  for (std::int64_t prompt = 0; prompt < prompts && !signals_.stop_requested(); ++prompt) {
    const std::string text = sampler_->complete(step_, prompt, plan);
    log::info(fmt::format("sample {}: {}", prompt + 1, one_line(text)));
    metrics_.event(step_, "sample", text);
  }
}

RunState Trainer::run_state() const {
  return {.step = step_,
          .loader = loader_.state(),
          .page = position_.page,
          .seed = shop_.config.run.seed,
          .train_data = shop_.data.train.fingerprint(),
          .val_data = shop_.data.val_fingerprint(),
          .rate = current_plan().geometry.rate,
          .skipped = guard_.skipped(),
          .wall_seconds = metrics_.wall_seconds(),
          .evaluation_pending = evaluation_pending_,
          .last_validation = last_validation_,
          .config_yaml = resolved_yaml_,
          .config_fingerprint = config_fingerprint(shop_.config)};
}

void Trainer::save() {
  const CheckpointConfig& config = shop_.config.checkpoint;
  last_save_ = Clock::now();
  const std::string path =
      save_checkpoint(config.dir, run_state(), shop_.store, *shop_.backend.device).string();
  saved_ = {step_, evaluation_pending_};
  log::info("saved " + path);
  metrics_.event(step_, "save", path);
  retire_checkpoints(config.dir, config, step_);
}

void Trainer::save_or_report() {
  try {
    save();
  } catch (const std::exception& error) {
    log::warn(std::string("could not save, training goes on; older checkpoints are kept: ") +
              error.what());
    metrics_.event(step_, "save_failed", error.what());
  }
}

ExitCode Trainer::finish() {
  const bool done = step_ >= shop_.schedule.steps() && !evaluation_pending_;
  if (!done && leaving_because_.empty()) must_leave();
  if (saved_ != std::pair(step_, evaluation_pending_)) save();
  signals_.release();
  const ExitCode code = done ? ExitCode::kDone : ExitCode::kInterrupted;
  metrics_.end(step_, done ? "done" : "interrupted", static_cast<int>(code), last_loss(),
               shop_.data.unigram_nats());
  if (!done) {
    log::info(fmt::format("stopped after step {} of {} ({}); the same command goes on from there",
                          step_, shop_.schedule.steps(), leaving_because_));
  } else if (last_validation_) {
    const double unigram = *shop_.data.unigram_nats();
    log::info(
        fmt::format("done after step {}: final val loss {:.4f}, unigram entropy {:.4f}, gain "
                    "{:.4f} nats",
                    step_, last_validation_->loss, unigram, unigram - last_validation_->loss));
  } else {
    log::info(fmt::format("done after step {}", step_));
  }
  return code;
}

}  // namespace nsa
