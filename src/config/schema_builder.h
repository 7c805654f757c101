#pragma once

// How the tables of the schema are written: one line a key.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace nsa::settings {

inline constexpr double kMaxInt32 = std::numeric_limits<std::int32_t>::max();
// Block arithmetic stays inside 32 bits, whatever is added to a context length.
inline constexpr double kMaxSeqLen = 1 << 30;
inline constexpr double kMaxBlock = 1 << 24;
// Their product stays inside 63 bits.
inline constexpr double kMaxTokensPerStep = 4294967296.0;
inline constexpr double kMaxTokens = 1e18;

/// Adds the keys that are fields of one struct, which `Base` finds in a (const) Target.
template <class Target, class Base>
class Section {
 public:
  /// `prefix` ends with a dot, or is empty.
  Section(std::vector<KeyOf<Target>>& keys, std::string prefix, Base base)
      : keys_(&keys), prefix_(std::move(prefix)), base_(base) {}

  template <class Owner, class T>
  void add(const std::string& leaf, T Owner::*field, Rules rules, const std::string& doc) const {
    rules.name = prefix_ + leaf;
    const Base base = base_;
    keys_->push_back(
        {.rules = rules,
         .type = type_name(T{}, rules),
         .doc = doc,
         .read = [base, field](
                     Target& target, const Value& value,
                     const Rules& named) { read_value(value, named, base(target).*field); },
         .write = [rules, base, field](
                      const Target& target) { return write_value(base(target).*field, rules); }});
  }

 private:
  std::vector<KeyOf<Target>>* keys_;
  std::string prefix_;
  Base base_;
};

/// A key whose feature another version will have: only `words`, the first of them the default, are
/// accepted. `reason`, where there is one, is told with the refusal.
Key later_key(const std::string& name, const std::vector<std::string>& words,
              const std::string& type, const std::string& doc, const std::string& reason = "");

// The parts of the table.
void add_model_keys(std::vector<Key>& keys);     ///< model, attention
void add_training_keys(std::vector<Key>& keys);  ///< data, tokenizer, train, optim, schedule
void add_run_keys(std::vector<Key>& keys);       ///< precision ... log
void add_stages_key(std::vector<Key>& keys);     ///< schedule.stages

}  // namespace nsa::settings
