// How a Trainer is built and how it resumes.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "config/parse.h"
#include "core/format.h"
#include "core/log.h"
#include "train/checkpoint.h"
#include "train/durable.h"
#include "train/resume.h"
#include "train/start_report.h"
#include "train/trainer.h"
#include "train/utilisation.h"
#include "train/version.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

LoaderOptions loader_options(const Workshop& shop, std::int64_t page) {
  return {.page = page,
          .seed = shop.config.run.seed,
          .shuffle = shop.config.data.shuffle,
          .doc_mask = shop.config.data.doc_mask,
          .max_rows = shop.largest_rows(),
          .vocab_size = shop.config.model.vocab_size};
}

const fs::path& writable(const fs::path& folder) {
  make_writable_folder(folder);
  return folder;
}

/// Chooses a checkpoint and makes sure that it fits, before anything on the disk is changed for it.
std::optional<ResumePoint> fitting_resume_point(const Workshop& shop) {
  std::optional<ResumePoint> point = find_resume_point(shop.config.checkpoint);
  make_writable_folder(shop.config.checkpoint.dir);
  check_free_space(shop.config.checkpoint, checkpoint_bytes(shop.store));
  if (point) check_same_model(point->manifest, shop.store);
  return point;
}

DataPosition position_of(const std::optional<ResumePoint>& point, const Workshop& shop) {
  if (!point) return {.page = shop.schedule.page(), .loader = {}};
  return resume_position(point->manifest.state, shop.config, shop.schedule,
                         {.train = shop.data.train.fingerprint(),
                          .val = shop.data.val_fingerprint(),
                          .tokens = shop.data.train.tokens()});
}

/// Checkpoints of later steps go aside before their rows do: were the process killed in between,
/// the next start would find the rows of more steps than it resumes, which it can mend, and not of
/// fewer.
MetricsFile metrics_of(const std::optional<ResumePoint>& point, const Config& config) {
  const fs::path path = fs::path(config.run.out_dir) / config.log.metrics;
  if (!point) return {path, std::nullopt};
  const RunState& state = point->manifest.state;
  set_aside_later(config.checkpoint.dir, state.step);
  return {path, state.step, state.wall_seconds};
}

/// What the configuration says now that the checkpoint's did not: a line a key.
std::vector<std::string> config_changes(const ResumePoint& point, const Config& now) {
  if (point.manifest.state.config_yaml == print_config(now)) return {};
  try {
    const std::string before = (point.path / kResolvedConfig).string();
    return config_diff(parse_config(before, {}, nullptr), now);
  } catch (const Error& error) {
    return {std::string("the checkpoint's configuration cannot be read by this version: ") +
            error.what()};
  }
}

}  // namespace

Trainer::Trainer(const Config& config)
    : signals_(config.signals),
      shop_(config),
      loader_(shop_.data.train, loader_options(shop_, shop_.schedule.page()),
              *shop_.backend.device),
      optimizer_(shop_.config.optim, shop_.store, shop_.backend),
      lock_(writable(shop_.config.run.out_dir), kLockPatience),
      resume_point_(fitting_resume_point(shop_)),
      position_(position_of(resume_point_, shop_)),
      metrics_(metrics_of(resume_point_, shop_.config)),
      guard_(shop_.config.guard, resume_point_ ? resume_point_->manifest.state.skipped : 0),
      resolved_yaml_(print_config(shop_.config)) {
  if (shop_.data.val && shop_.config.eval.tokens > 0) evaluator_.emplace(shop_);
  if (!shop_.config.eval.sample.prompts.empty()) sampler_.emplace(shop_);
  peak_flops_ = peak_flops(shop_.config, shop_.backend.device->name(), shop_.store.dtype());
  evaluation_pending_ = evaluator_ && shop_.config.eval.at_start;
  if (position_.page != shop_.schedule.page()) {
    loader_ =
        Loader(shop_.data.train, loader_options(shop_, position_.page), *shop_.backend.device);
  }
  shop_.rehearse();
  if (resume_point_) resume(*resume_point_);
}

void Trainer::resume(const ResumePoint& point) {
  const RunState& state = point.manifest.state;
  const fs::path folder = shop_.config.checkpoint.dir;
  load_checkpoint(point.path, point.manifest, shop_.store, *shop_.backend.device);
  loader_.seek(position_.loader);
  step_ = state.step;
  evaluation_pending_ = evaluator_ && state.evaluation_pending;
  last_validation_ = state.last_validation;
  std::error_code error;
  if (fs::equivalent(point.path.parent_path(), folder, error))
    saved_ = {step_, evaluation_pending_};
  // A stage edge that a changed schedule moved behind this step was not crossed by a step.
  if (step_ < shop_.schedule.steps() &&
      loader_.state().cursor % shop_.schedule.at(step_).seq_len != 0) {
    loader_.finish_page();
  }
}

void Trainer::begin() {
  for (const std::string& line : start_report(shop_)) log::info(line);
  std::string resumed_from;
  if (resume_point_) {
    resumed_from = resume_point_->path.string();
    log::info(fmt::format("resume    step {} of {}, from {}", step_, shop_.schedule.steps(),
                          resumed_from));
    for (const std::string& line : config_changes(*resume_point_, shop_.config)) {
      log::info("changed   " + line);
    }
  } else {
    log::info("resume    none: starting at step 0");
  }
  if (log::warnings() > 0) log::info(fmt::format("warnings  {}, see above", log::warnings()));
  replace_file(fs::path(shop_.config.run.out_dir) / kResolvedConfig, resolved_yaml_);
  metrics_.start(step_, full_version(), shop_.backend.device->name(), resumed_from);
  metrics_.config(step_, shop_.config);
}

}  // namespace nsa
