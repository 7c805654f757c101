#include "config/suggest.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

constexpr std::size_t kLargestDistance = 2;

/// Names that other systems have for our keys.
constexpr std::array<std::pair<const char*, const char*>, 53> kAliases = {{
    {"learning_rate", "optim.lr"},
    {"max_lr", "optim.lr"},
    {"peak_lr", "optim.lr"},
    {"adam_beta1", "optim.betas"},
    {"adam_beta2", "optim.betas"},
    {"beta1", "optim.betas"},
    {"beta2", "optim.betas"},
    {"adam_eps", "optim.eps"},
    {"adam_epsilon", "optim.eps"},
    {"epsilon", "optim.eps"},
    {"wd", "optim.weight_decay"},
    {"grad_clip", "optim.clip"},
    {"clip_grad", "optim.clip"},
    {"max_grad_norm", "optim.clip"},
    {"gradient_clipping", "optim.clip"},
    {"batch_size", "train.tokens_per_step"},
    {"global_batch_size", "train.tokens_per_step"},
    {"total_batch_size", "train.tokens_per_step"},
    {"gradient_accumulation_steps", "train.tokens_per_step"},
    {"micro_batch_size", "train.micro_batch"},
    {"device_batch_size", "train.micro_batch"},
    {"per_device_batch_size", "train.micro_batch"},
    {"seq_length", "train.seq_len"},
    {"sequence_length", "train.seq_len"},
    {"max_seq_len", "train.seq_len"},
    {"block_size", "train.seq_len"},
    {"context_length", "train.seq_len"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"train_iters", "train.steps"},
    {"num_epochs", "train.epochs"},
    {"max_tokens", "train.tokens"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_head", "model.heads"},
    {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"hidden_size", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"d_model", "model.hidden"},
    {"intermediate_size", "model.ffn"},
    {"ffn_hidden_size", "model.ffn"},
    {"rms_norm_eps", "model.norm_eps"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"initializer_range", "model.init_std"},
    {"warmup_steps", "schedule.lr.warmup"},
    {"lr_scheduler", "schedule.lr.kind"},
    {"min_lr", "schedule.lr.min_ratio"},
    {"save_interval", "checkpoint.every"},
}};

std::string leaf_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}
std::string section_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// A guess; the smallest is the best: fewest edits, then the same section, then a key of ours.
using Guess = std::tuple<std::size_t, bool, bool, std::string>;

void guess(std::set<Guess>& guesses, std::size_t distance, bool elsewhere, bool alias,
           const std::string& key) {
  if (distance <= kLargestDistance) guesses.emplace(distance, elsewhere, alias, key);
}

std::set<std::string> section_names() {
  std::set<std::string> sections;
  for (const Key& key : schema()) {
    for (std::string name = section_of(key.rules.name); !name.empty(); name = section_of(name)) {
      sections.insert(name);
    }
  }
  return sections;
}

/// What stands directly in `section` (empty: the top), in the order of the schema.
std::string children_of(const std::string& section) {
  const std::string prefix = section.empty() ? "" : section + ".";
  std::vector<std::string> children;
  for (const Key& key : schema()) {
    if (key.rules.name.rfind(prefix, 0) != 0) continue;
    const std::string rest = key.rules.name.substr(prefix.size());
    const std::string child = rest.substr(0, rest.find('.'));
    if (children.empty() || children.back() != child) children.push_back(child);
  }
  std::string text;
  for (const std::string& child : children) text += (text.empty() ? "" : ", ") + child;
  return text;
}

}  // namespace

std::size_t edit_distance(const std::string& a, const std::string& b) {
  const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

void fail_unknown_key(const Value& entry, const std::string& full_name) {
  const std::string leaf = leaf_of(full_name);
  const std::string section = section_of(full_name);
  std::set<Guess> guesses;
  for (const Key& key : schema()) {
    const std::string& name = key.rules.name;
    const bool elsewhere = section_of(name) != section;
    guess(guesses, edit_distance(leaf, leaf_of(name)), elsewhere, false, name);
    guess(guesses, edit_distance(full_name, name), elsewhere, false, name);
  }
  for (const std::string& name : section_names()) {
    const std::size_t distance = edit_distance(leaf, leaf_of(name));
    // Section names are short: two edits make another word of most of them.
    if (2 * distance < leaf.size()) {
      guess(guesses, distance, section_of(name) != section, false, name);
    }
  }
  for (const auto& [alias, key] : kAliases) {
    guess(guesses, edit_distance(leaf, alias), true, true, key);
  }
  const std::string what = fmt::format("{}: unknown key {}", entry.name_where, full_name);
  if (!guesses.empty()) {
    const std::string& best = std::get<3>(*guesses.begin());
    const bool moved = section_of(best) != section && !section_of(best).empty();
    fail_config(fmt::format("{}; did you mean {}{}?", what, best,
                            moved ? " (in section " + section_of(best) + ")" : ""));
  }
  const bool known = !section.empty() && is_section(section);
  fail_config(fmt::format("{}; {} {}", what,
                          known ? "the keys of " + section + " are" : "the sections are",
                          children_of(known ? section : "")));
}

void fail_unknown_stage_key(const Value& entry, const std::string& stage) {
  std::set<Guess> guesses;
  std::string names;
  for (const StageKey& key : stage_schema()) {
    guess(guesses, edit_distance(entry.name, key.rules.name), false, false, key.rules.name);
    names += (names.empty() ? "" : ", ") + key.rules.name;
  }
  for (const auto& [alias, key] : kAliases) {
    const std::string leaf = leaf_of(key);
    if (leaf != "seq_len" && leaf != "tokens_per_step") continue;
    guess(guesses, edit_distance(entry.name, alias), false, true, leaf);
  }
  const std::string what =
      fmt::format("{}: unknown key {} of {}", entry.name_where, entry.name, stage);
  if (!guesses.empty()) {
    fail_config(what + "; did you mean " + std::get<3>(*guesses.begin()) + "?");
  }
  fail_config(what + "; a stage has " + names);
}

}  // namespace nsa::settings
