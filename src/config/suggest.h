#pragma once

// What to say about a key that does not exist.

#include <string>

#include "config/value.h"

namespace nsa::settings {

/// Insertions, deletions and replacements between two words, upper and lower case alike.
std::size_t edit_distance(const std::string& a, const std::string& b);

/// `entry` stands as `full_name` but no such key exists: names the key that was probably meant
/// ("did you mean ..."), else the keys of its section.
[[noreturn]] void fail_unknown_key(const Value& entry, const std::string& full_name);
/// The same for the entry of a stage; `stage` is "schedule.stages[1]".
[[noreturn]] void fail_unknown_stage_key(const Value& entry, const std::string& stage);

}  // namespace nsa::settings
