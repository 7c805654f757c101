#pragma once

// The schema: one table of every key a YAML file may hold. Reading, printing, the fingerprint, the
// suggestions for misspelt keys and docs/config.md all follow it.

#include <functional>
#include <string>
#include <vector>

#include "config/codec.h"
#include "config/draft.h"

namespace nsa::settings {

template <class Target>
struct KeyOf {
  Rules rules;
  std::string type;  ///< for the reference
  std::string doc;
  /// The rules are the key's, or those under the longer name that a message has to tell.
  std::function<void(Target&, const Value&, const Rules&)> read;
  std::function<std::string(const Target&)> write;
  /// What the fingerprint takes in place of write's text where parts of the value are not shared.
  std::function<std::string(const Target&)> write_shared{};
};
using Key = KeyOf<Draft>;
using StageKey = KeyOf<StageDraft>;

/// Sections stand together, in the order in which they are printed.
const std::vector<Key>& schema();
/// The keys of an entry of schedule.stages; their names have no prefix.
const std::vector<StageKey>& stage_schema();

/// The key of that full name, or null.
const Key* find_key(const std::string& name);
/// Whether keys `name.*` exist.
bool is_section(const std::string& name);

}  // namespace nsa::settings
