#include "config/parse.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "config/presets.h"
#include "config/resolve.h"
#include "config/schema.h"
#include "config/suggest.h"
#include "config/validate.h"
#include "config/yaml_reader.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa {
namespace settings {
namespace {

/// A key and the value that somebody gave it.
struct Assignment {
  const Key* key = nullptr;
  Value value;
  std::string folder;  ///< where relative paths in it count from
};

const std::array<std::string, 3> kLengths = {"train.steps", "train.epochs", "train.tokens"};

bool is_length(const std::string& key) {
  return std::find(kLengths.begin(), kLengths.end(), key) != kLengths.end();
}

/// What `sample: text` is short for.
std::string shorthand_key(const std::string& section) {
  return section == "eval.sample" ? "eval.sample.prompts" : "";
}

void refuse_dots(const Value& entry) {
  if (entry.name.find('.') == std::string::npos) return;
  fail_config(
      fmt::format("{}: {}: dotted names are for --override; in a map a key stands inside "
                  "its section",
                  entry.name_where, entry.name));
}

/// Takes `entry`, which stands as `name`, apart into assignments.
void collect(const Value& entry, const std::string& name, const std::string& folder,
             std::vector<Assignment>& out) {
  if (const Key* const key = find_key(name)) {
    out.push_back({key, entry, folder});
  } else if (!is_section(name)) {
    fail_unknown_key(entry, name);
  } else if (entry.kind == Value::Kind::kMap) {
    for (const Value& item : entry.items) {
      refuse_dots(item);
      collect(item, name + "." + item.name, folder, out);
    }
  } else if (!shorthand_key(name).empty()) {
    out.push_back({find_key(shorthand_key(name)), entry, folder});
  } else if (entry.kind != Value::Kind::kNull) {
    fail_config(fmt::format("{}: {} is {}; it is a section with keys of its own", entry.where, name,
                            describe(entry)));
  }
}

void make_absolute(Value& value, const std::string& folder) {
  if (value.kind == Value::Kind::kScalar && !value.text.empty()) {
    value.text = std::filesystem::absolute(std::filesystem::path(folder) / value.text)
                     .lexically_normal()
                     .string();
  }
  for (Value& item : value.items) make_absolute(item, folder);
}

bool is_resume_word(const Assignment& assignment) {
  const auto& [key, value, folder] = assignment;
  return key->rules.name == "checkpoint.resume" &&
         (is_word(value, "auto") || is_word(value, "never") || is_word(value, "must"));
}

void assign(Draft& draft, Assignment assignment) {
  const Rules& rules = assignment.key->rules;
  if (rules.path && !is_resume_word(assignment)) make_absolute(assignment.value, assignment.folder);
  assignment.key->read(draft, assignment.value, rules);
  draft.places[rules.name] = assignment.value.where;
}

void apply_last_preset(Draft& draft, const std::vector<Assignment>& assignments) {
  for (auto last = assignments.rbegin(); last != assignments.rend(); ++last) {
    if (last->key->rules.name != "model.preset") continue;
    if (last->value.kind == Value::Kind::kNull) return;
    const Preset* const preset =
        last->value.kind == Value::Kind::kScalar ? find_preset(last->value.text) : nullptr;
    if (preset == nullptr) refuse(last->value, last->key->rules, join_or(preset_names()));
    apply_preset(*preset, draft);
    return;
  }
}

void refuse_two_lengths(const std::vector<Assignment>& assignments) {
  const Assignment* first = nullptr;
  for (const Assignment& assignment : assignments) {
    const std::string& name = assignment.key->rules.name;
    if (!is_length(name) || assignment.value.kind == Value::Kind::kNull) continue;
    if (first != nullptr) {
      fail_config(fmt::format("{}: {} is set beside {}; keep one of steps, epochs and tokens",
                              assignment.value.where, name, first->key->rules.name));
    }
    first = &assignment;
  }
}

Draft read_draft(const std::string& path, const std::vector<std::string>& overrides) {
  std::vector<Assignment> from_file;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (const Value& entry : read_yaml_file(path).items) {
    refuse_dots(entry);
    collect(entry, entry.name, folder, from_file);
  }
  refuse_two_lengths(from_file);
  std::vector<Assignment> all = from_file;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const Value entry = read_override(overrides[i], static_cast<int>(i) + 1);
    collect(entry, entry.name, "", all);
  }

  Draft draft;
  draft.file = path;
  apply_last_preset(draft, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool overridden = i >= from_file.size() && is_length(all[i].key->rules.name) &&
                            all[i].value.kind != Value::Kind::kNull;
    if (overridden) {
      draft.config.train.steps.reset();
      draft.config.train.epochs.reset();
      draft.config.train.tokens.reset();
    }
    assign(draft, all[i]);
  }
  return draft;
}

}  // namespace
}  // namespace settings

Config parse_config(const std::string& yaml_path, const std::vector<std::string>& overrides,
                    std::vector<std::string>* warnings) {
  settings::Draft draft = settings::read_draft(yaml_path, overrides);
  settings::resolve(draft);
  settings::validate(draft);
  if (warnings != nullptr) {
    const std::vector<std::string> found = settings::find_warnings(draft);
    warnings->insert(warnings->end(), found.begin(), found.end());
  }
  return draft.config;
}

}  // namespace nsa
