#include "config/resolve.h"

#include <algorithm>
#include <filesystem>

#include "config/stages.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

constexpr std::int64_t kDefaultSteps = 20000;

void resolve_model(Draft& draft) {
  ModelConfig& model = draft.config.model;
  if (!draft.head_dim && model.hidden % model.heads != 0) {
    fail_config(fmt::format(
        "{}: model.hidden is {}, which model.heads ({}) does not divide; change one of them or set "
        "model.head_dim",
        draft.where("model.hidden"), model.hidden, model.heads));
  }
  model.head_dim = draft.head_dim.value_or(model.hidden / model.heads);
  model.v_head_dim = draft.v_head_dim.value_or(model.head_dim);
  model.rope_dim = draft.rope_dim.value_or(model.head_dim);
  CompressConfig& compress = draft.config.attention.compress;
  compress.hidden_key = draft.compress_hidden.value_or(model.head_dim);
  compress.hidden_value = draft.compress_hidden.value_or(model.v_head_dim);
}

void resolve_stages(Draft& draft) {
  TrainConfig& train = draft.config.train;
  std::int64_t& base_rate = draft.config.attention.compress.rate;
  StageConfig now{.from = {},
                  .seq_len = train.seq_len,
                  .rate = base_rate,
                  .tokens_per_step = train.tokens_per_step,
                  .micro_batch = train.micro_batch};
  bool automatic = false;  // the rate, as last written, is auto: it follows seq_len
  std::vector<StageConfig>& stages = draft.config.schedule.stages;
  stages.clear();
  for (const StageDraft& entry : draft.stages) {
    now.from = entry.from;
    now.seq_len = entry.seq_len.value_or(now.seq_len);
    now.tokens_per_step = entry.tokens_per_step.value_or(now.tokens_per_step);
    if (entry.auto_rate || entry.rate) automatic = entry.auto_rate;
    now.rate = automatic ? auto_rate(now.seq_len) : entry.rate.value_or(now.rate);
    now.rewarm = entry.rewarm;
    now.micro_batch = entry.places.count("micro_batch") > 0 ? entry.micro_batch : train.micro_batch;
    stages.push_back(now);
  }
  if (stages.empty()) stages.push_back(now);
  // What holds at the first step is told once: by its stage.
  train.seq_len = stages.front().seq_len;
  train.tokens_per_step = stages.front().tokens_per_step;
  train.micro_batch = stages.front().micro_batch;
  base_rate = stages.front().rate;
}

/// The default length is for a configuration that says nothing, not for "steps:" with its number
/// forgotten.
void refuse_emptied_length(const Draft& draft) {
  for (const char* key : {"train.steps", "train.epochs", "train.tokens"}) {
    if (draft.places.count(key) == 0) continue;
    fail_config(
        fmt::format("{}: {} is null, and no other key tells the length of the run; set one "
                    "of train.steps, train.epochs and train.tokens",
                    draft.where(key), key));
  }
}

std::string base_key(const std::string& leaf) {
  return leaf == "rate" ? "attention.compress.rate" : "train." + leaf;
}

}  // namespace

void resolve(Draft& draft) {
  Config& config = draft.config;
  resolve_model(draft);
  resolve_stages(draft);
  if (!config.train.steps && !config.train.epochs && !config.train.tokens) {
    refuse_emptied_length(draft);
    config.train.steps = kDefaultSteps;
  }
  const std::string dir = config.checkpoint.dir.empty() ? "ckpt" : config.checkpoint.dir;
  config.checkpoint.dir = (std::filesystem::path(config.run.out_dir) / dir).string();
}

Draft draft_of(const Config& config) {
  Draft draft;
  draft.config = config;
  draft.head_dim = config.model.head_dim;
  draft.v_head_dim = config.model.v_head_dim;
  draft.rope_dim = config.model.rope_dim;
  const CompressConfig& compress = config.attention.compress;
  if (compress.hidden_key == compress.hidden_value) draft.compress_hidden = compress.hidden_key;

  const std::vector<StageConfig>& stages = config.schedule.stages;
  // A lone stage says nothing that train.* and attention.compress.rate do not say.
  if (stages.size() > 1 || (stages.size() == 1 && stages.front().rewarm > 0)) {
    for (const StageConfig& stage : stages) {
      StageDraft entry;
      entry.from = stage.from;
      entry.seq_len = stage.seq_len;
      entry.rate = stage.rate;
      entry.tokens_per_step = stage.tokens_per_step;
      entry.micro_batch = stage.micro_batch;
      entry.rewarm = stage.rewarm;
      draft.stages.push_back(entry);
    }
  }
  const std::string out_dir = (std::filesystem::path(config.run.out_dir) / "").string();
  std::string& dir = draft.config.checkpoint.dir;
  if (dir.rfind(out_dir, 0) == 0) dir = dir.substr(out_dir.size());
  return draft;
}

Origin origin_of(const Draft& draft, std::size_t stage, const std::string& leaf) {
  for (std::size_t i = std::min(stage + 1, draft.stages.size()); i-- > 0;) {
    const auto found = draft.stages[i].places.find(leaf);
    if (found != draft.stages[i].places.end()) {
      return {found->second, fmt::format("schedule.stages[{}].{}", i, leaf)};
    }
  }
  return {draft.where(base_key(leaf)), base_key(leaf)};
}

}  // namespace nsa::settings
