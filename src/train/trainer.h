#pragma once

// Trainer: the step, and the loop around it. Everything that a run does is told here; how each
// thing is done stands in the files it names.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "config/config.h"
#include "core/error.h"
#include "data/loader.h"
#include "train/checkpoint_folder.h"
#include "train/evaluator.h"
#include "train/guard.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/resume.h"
#include "train/run_lock.h"
#include "train/sampler.h"
#include "train/signals.h"
#include "train/workshop.h"

namespace nsa {

/// What one step did.
struct StepReport {
  StepPlan plan;
  double loss = 0;       ///< mean cross-entropy over the valid targets, before the update
  double grad_norm = 0;  ///< of the mean gradient, before clipping
  double seconds = 0;
  double data_seconds = 0;  ///< of these, spent on reading data
};

class Trainer {
 public:
  /// Builds everything, takes the lock on run.out_dir and resumes what checkpoint.resume names.
  /// Throws Error with the exit code of what is wrong, in the order configuration, data,
  /// checkpoint.
  explicit Trainer(const Config& config);

  /// Trains to the last step, or until a signal or a limit of `run` says stop; saves; returns kDone
  /// or kInterrupted. Throws Error: kNonFinite from the guard, kCheckpoint when the last save
  /// fails.
  ExitCode train();

  /// Update number `step` + 1. Throws Error (kNonFinite) before the weights are touched when loss
  /// or gradient are not finite and guard.on_nonfinite is stop.
  StepReport train_step(std::int64_t step);

  std::int64_t finished_steps() const { return step_; }
  const Workshop& shop() const { return shop_; }

 private:
  void resume(const ResumePoint& point);
  void begin();
  void enter_stage(const StepPlan& plan);
  /// Whether the update may be made; says what was found where it may not.
  bool guard_admits(const StepReport& report, const LoaderState& first);
  void report_step(const StepReport& report);

  bool evaluation_due() const;
  void validate();
  void print_samples(const StepPlan& plan);
  /// The plan of the stage that made the present weights.
  StepPlan current_plan() const;

  bool save_due();
  void save();
  void save_or_report();
  RunState run_state() const;

  std::optional<double> last_loss() const;
  bool must_leave();
  ExitCode finish();

  static constexpr std::chrono::milliseconds kLockPatience{5000};

  SignalWatch signals_;  // first: a signal during a long start is obeyed too
  Workshop shop_;
  Loader loader_;
  std::optional<Evaluator> evaluator_;
  std::optional<Sampler> sampler_;
  Optimizer optimizer_;
  RunLock lock_;
  std::optional<ResumePoint> resume_point_;
  DataPosition position_;
  MetricsFile metrics_;
  NonFiniteGuard guard_;
  std::string resolved_yaml_;

  std::int64_t step_ = 0;  ///< finished updates
  bool evaluation_pending_ = false;
  bool memory_told_ = false;  ///< the peak beside the plan
  /// What the newest checkpoint in checkpoint.dir holds: step, evaluation_pending.
  std::optional<std::pair<std::int64_t, bool>> saved_;
  std::optional<Validation> last_validation_;
  std::string leaving_because_;

  using Clock = std::chrono::steady_clock;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_save_ = Clock::now();
  struct {
    double seconds = 0;
    double data_seconds = 0;
    std::int64_t tokens = 0;
    double flops = 0;
  } since_report_;
  std::optional<double> peak_flops_;  ///< of the device
};

}  // namespace nsa
