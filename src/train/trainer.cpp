#include "train/trainer.h"

#include <algorithm>
#include <exception>

#include "core/format.h"
#include "core/log.h"

namespace nsa {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ExitCode Trainer::train() {
  try {
    begin();
    if (evaluation_pending_) validate();
    while (step_ < shop_.schedule.steps() && !must_leave()) {
      report_step(train_step(step_));
      if (evaluation_due()) validate();
      if (save_due()) save_or_report();
    }
    return finish();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const ExitCode code = known != nullptr ? known->code() : ExitCode::kRuntime;
    metrics_.end(step_, "failed", static_cast<int>(code), last_loss(), shop_.data.unigram_nats());
    throw;
  }
}

StepReport Trainer::train_step(std::int64_t step) {
  const Clock::time_point begun = Clock::now();
  StepReport report{.plan = shop_.schedule.at(step)};
  const StepPlan& plan = report.plan;
  if (plan.first_of_stage) enter_stage(plan);
  const LoaderState first_token = loader_.state();

  shop_.store.zero_gradients();
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  std::int64_t targets = 0;
  for (std::int64_t micro = 0; micro < plan.micro_batches; ++micro) {
    const Clock::time_point asked = Clock::now();
    const Batch batch = loader_.next(plan.micro_batch, plan.seq_len);
    report.data_seconds += seconds_since(asked);
    shop_.model.train_micro(batch, plan.geometry, 1.0 / tokens);
    targets += batch.targets_valid;
  }
  // The last token of a masked document has no target: the mean is over those that have one.
  const auto valid = static_cast<double>(std::max<std::int64_t>(targets, 1));
  const double grad_scale = tokens / valid;
  report.loss = shop_.model.take_loss_sums().cross_entropy / valid;
  report.grad_norm = optimizer_.gradient_norm(grad_scale);
  if (guard_admits(report, first_token)) optimizer_.update(plan, grad_scale);

  step_ = step + 1;
  report.seconds = seconds_since(begun);
  return report;
}

void Trainer::enter_stage(const StepPlan& plan) {
  loader_.finish_page();
  if (plan.stage == 0) return;
  const std::string line = fmt::format(
      "stage {}: seq_len {}, rate {}, {} tokens a step, {} micro-batches of {}", plan.stage,
      plan.seq_len, plan.geometry.rate, plan.tokens_per_step, plan.micro_batches, plan.micro_batch);
  log::info(line);
  metrics_.event(plan.step, "stage", line);
}

bool Trainer::guard_admits(const StepReport& report, const LoaderState& first) {
  const Verdict verdict = guard_.judge(report.loss, report.grad_norm);
  if (verdict == Verdict::kUpdate) return true;
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}: not finite; the batch begins at token {} of epoch {} in "
      "the data order",
      report.plan.step + 1, report.loss, report.grad_norm, first.cursor, first.epoch);
  metrics_.event(report.plan.step, verdict == Verdict::kSkip ? "skip" : "nonfinite", what);
  if (verdict == Verdict::kStop) {
    const bool skips = shop_.config.guard.on_nonfinite == "skip";
    throw Error(what +
                    "; the weights were not updated, and the last checkpoint is kept; try a "
                    "lower optim.lr, or " +
                    (skips ? fmt::format("a guard.max_skips above {}", guard_.skipped())
                           : std::string("guard.on_nonfinite: skip")),
                ExitCode::kNonFinite);
  }
  log::warn(what + "; the update is skipped");
  return false;
}

bool Trainer::must_leave() {
  const RunConfig& run = shop_.config.run;
  if (signals_.stop_requested()) {
    leaving_because_ = "signal " + signals_.stop_name();
  } else if (run.stop_after && step_ >= *run.stop_after) {
    leaving_because_ = fmt::format("run.stop_after: {}", *run.stop_after);
  } else if (run.max_minutes && seconds_since(started_) >= 60 * *run.max_minutes) {
    leaving_because_ = fmt::format("run.max_minutes: {}", *run.max_minutes);
  }
  return !leaving_because_.empty();
}

bool Trainer::save_due() {
  const CheckpointConfig& config = shop_.config.checkpoint;
  const bool asked = signals_.take_save_request();
  const bool by_steps = config.every > 0 && step_ % config.every == 0;
  const bool by_time =
      config.every_minutes && seconds_since(last_save_) >= 60 * *config.every_minutes;
  return asked || by_steps || by_time;
}

}  // namespace nsa
