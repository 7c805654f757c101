#include "config/schema.h"

#include <algorithm>
#include <string_view>

#include "config/schema_builder.h"
#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

std::vector<Key> all_keys() {
  std::vector<Key> keys;
  const auto run = [](auto& draft) -> auto& {
    return draft.config.run;
  };
  const Section section(keys, "run.", run);
  section.add("name", &RunConfig::name, {.none = "", .shared = false},
              "Name of the run, for logs and metrics.");
  section.add("out_dir", &RunConfig::out_dir, {.none = "", .shared = false},
              "Folder of everything the run writes. Counts from the working directory.");
  section.add("seed", &RunConfig::seed, {},
              "Seed of the initial weights, the data order and the samples.");
  section.add("device", &RunConfig::device, {.none = "", .shared = false},
              "auto, cpu, cuda or cuda:N. auto: a GPU when there is one.");
  section.add("kernels", &RunConfig::kernels, {.choices = {"auto", "general"}, .shared = false},
              "On a GPU: auto takes the fast path of its generation where there is one; general "
              "takes the kernels that every GPU from sm_80 on runs. The CPU has one kind.");
  section.add("max_minutes", &RunConfig::max_minutes,
              {.min = 0, .open = true, .minutes = true, .shared = false, .unit = "minutes"},
              "Wall-clock limit: save, then leave with code 75. null: none.");
  section.add("stop_after", &RunConfig::stop_after,
              {.min = 1, .max = kMaxInt32, .shared = false, .unit = "steps"},
              "Save after this step and leave with code 75. Changes nothing else. null: never.");
  keys.push_back(later_key("run.deterministic", {"true"}, "true or false",
                           "The same bits on every start.", "every run is deterministic"));
  add_model_keys(keys);
  add_training_keys(keys);
  add_run_keys(keys);
  return keys;
}

}  // namespace

Key later_key(const std::string& name, const std::vector<std::string>& words,
              const std::string& type, const std::string& doc, const std::string& reason) {
  const auto read = [words, reason](Draft& /*draft*/, const Value& value, const Rules& rules) {
    const bool known = std::any_of(words.begin(), words.end(), [&value](const std::string& word) {
      return value.kind == Value::Kind::kNull ? word == "null" : is_word(value, word);
    });
    if (!known) {
      fail_config(fmt::format("{}: {}: {} is not in this version{}; leave it at {}", value.where,
                              rules.name, describe(value), reason.empty() ? "" : ": " + reason,
                              join_or(words)));
    }
  };
  return {.rules = {.name = name, .shared = false},
          .type = type,
          .doc = doc + " Not in this version: only " + join_or(words) + ".",
          .read = read,
          .write = [word = words.front()](const Draft&) { return word; }};
}

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

const Key* find_key(const std::string& name) {
  const auto& keys = schema();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&name](const Key& key) { return key.rules.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

bool is_section(const std::string& name) {
  const auto& keys = schema();
  return std::any_of(keys.begin(), keys.end(), [prefix = name + "."](const Key& key) {
    return std::string_view(key.rules.name).substr(0, prefix.size()) == prefix;
  });
}

}  // namespace nsa::settings
