#include "train/resume.h"

#include <string>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "train/workshop.h"

namespace nsa {
namespace {

/// The set that differs, for messages; empty when none does.
std::string changed_set(const RunState& saved, const DataNow& now) {
  if (saved.train_data != now.train) return "data.train";
  if (saved.val_data != now.val) return "data.val";
  return "";
}

bool page_serves(std::int64_t page, const Schedule& schedule) {
  for (const StageSpan& stage : schedule.stages()) {
    if (page % stage.config.seq_len != 0) return false;
  }
  return page > 0;
}

}  // namespace

DataPosition resume_position(const RunState& saved, const Config& config, const Schedule& schedule,
                             const DataNow& now) {
  DataPosition position{.page = saved.page, .loader = saved.loader};
  const std::string changed = changed_set(saved, now);
  if (!changed.empty() && config.data.on_change == "error") {
    fail_checkpoint(fmt::format(
        "the tokens of {} are not those of the checkpoint; name the old files, or set "
        "data.on_change to restart (read the data from its start) or ignore (go on at the same "
        "place)",
        changed));
  }
  if (!changed.empty()) {
    log::warn(fmt::format("the tokens of {} changed since the checkpoint; data.on_change is {}",
                          changed, config.data.on_change));
  }
  if (changed == "data.train" && config.data.on_change == "restart") {
    return {.page = schedule.page(), .loader = {.dropped = saved.loader.dropped}};
  }
  const bool same_page = page_serves(saved.page, schedule);
  if (!same_page) position.page = schedule.page();
  if (!same_page || position.loader.cursor >= epoch_tokens(now.tokens, position.page)) {
    log::warn(fmt::format(
        "the data order of the checkpoint (pages of {} tokens, token {} of epoch {}) does not fit "
        "this run; going on with epoch {}",
        saved.page, saved.loader.cursor, saved.loader.epoch, saved.loader.epoch + 1));
    position.loader.epoch = saved.loader.epoch + 1;
    position.loader.cursor = 0;
  }
  return position;
}

}  // namespace nsa
