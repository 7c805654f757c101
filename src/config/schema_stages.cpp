// The schema of schedule.stages and of its entries.

#include "config/schema_builder.h"
#include "config/suggest.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

StageKey rate_key() {
  const Rules rules{.name = "rate", .min = 1, .max = kMaxBlock, .none = "auto", .unit = "tokens"};
  const auto read = [](StageDraft& stage, const Value& value, const Rules& named) {
    read_value(value, named, stage.rate);
    stage.auto_rate = !stage.rate;
  };
  const auto write = [rules](const StageDraft& stage) { return write_value(stage.rate, rules); };
  return {.rules = rules,
          .type = "whole number, or auto",
          .doc =
              "Tokens per compressed token. auto: by seq_len: up to 2048: 1, up to 8192: 8, up "
              "to 32768: 16, above: 32.",
          .read = read,
          .write = write};
}

std::vector<StageKey> all_stage_keys() {
  std::vector<StageKey> keys;
  const Section stage(
      keys, "", [](auto& draft) -> auto& { return draft; });
  stage.add("from", &StageDraft::from, {.min = 0, .max = kMaxTokens, .unit = "steps or tokens"},
            "Where the stage begins; needed. N: it governs steps N + 1 on; with K, M or B: from "
            "the first step that starts at or after so many tokens. The first stage: 0.");
  stage.add("seq_len", &StageDraft::seq_len, {.min = 1, .max = kMaxSeqLen, .unit = "tokens"},
            "Context length; divides the largest of the schedule.");
  keys.push_back(rate_key());
  stage.add("tokens_per_step", &StageDraft::tokens_per_step,
            {.min = 1, .max = kMaxTokensPerStep, .suffix = true, .unit = "tokens"},
            "Tokens of one update.");
  stage.add("micro_batch", &StageDraft::micro_batch,
            {.min = 1, .max = kMaxInt32, .none = "auto", .shared = false, .unit = "sequences"},
            "Sequences computed at once in this stage. Left out: train.micro_batch.");
  stage.add("rewarm", &StageDraft::rewarm, {.min = 0, .max = kMaxInt32, .unit = "steps"},
            "Steps over which the learning rate climbs from min_ratio to its full value again.");
  return keys;
}

/// `whole`: with the keys that are not part of the fingerprint.
std::string write_stages(const std::vector<StageDraft>& stages, bool whole) {
  std::string text;
  for (const StageDraft& stage : stages) {
    std::string entry;
    for (const StageKey& key : stage_schema()) {
      if (!whole && !key.rules.shared) continue;
      entry += (entry.empty() ? "" : ", ") + key.rules.name + ": " + key.write(stage);
    }
    text += (text.empty() ? "{" : ", {") + entry + "}";
  }
  return "[" + text + "]";
}

StageDraft read_stage(const Value& value, std::size_t index) {
  const std::string name = fmt::format("schedule.stages[{}]", index);
  if (value.kind != Value::Kind::kMap) {
    refuse(value, {.name = name}, "a map such as {from: 0, seq_len: 2048}");
  }
  StageDraft stage;
  stage.where = value.where;
  for (const Value& entry : value.items) {
    const StageKey* found = nullptr;
    for (const StageKey& key : stage_schema()) {
      if (key.rules.name == entry.name) found = &key;
    }
    if (found == nullptr) fail_unknown_stage_key(entry, name);
    Rules named = found->rules;
    named.name = name + "." + entry.name;
    found->read(stage, entry, named);
    stage.places[entry.name] = entry.where;
  }
  if (stage.places.count("from") == 0) {
    fail_config(fmt::format("{}: {} has no from; say the step (or tokens, 500M) it begins at",
                            value.where, name));
  }
  return stage;
}

}  // namespace

const std::vector<StageKey>& stage_schema() {
  static const std::vector<StageKey> keys = all_stage_keys();
  return keys;
}

void add_stages_key(std::vector<Key>& keys) {
  const Rules rules{.name = "schedule.stages"};
  const auto read = [](Draft& draft, const Value& value, const Rules& named) {
    draft.stages.clear();
    if (value.kind == Value::Kind::kNull) return;
    if (value.kind != Value::Kind::kList) {
      refuse(value, named, "a list of maps such as [{from: 0, seq_len: 2048}]");
    }
    for (const Value& item : value.items) {
      draft.stages.push_back(read_stage(item, draft.stages.size()));
    }
  };
  keys.push_back(
      {.rules = rules,
       .type = "list of stages (below)",
       .doc = "Context length, rate and tokens per step over the run. Empty: train.* "
              "and attention.compress.rate hold throughout.",
       .read = read,
       .write = [](const Draft& draft) { return write_stages(draft.stages, true); },
       .write_shared = [](const Draft& draft) { return write_stages(draft.stages, false); }});
}

}  // namespace nsa::settings
