#pragma once

// From what was written to what holds, and back: nulls, inheritance of stages, paths.

#include <cstddef>
#include <string>

#include "config/draft.h"

namespace nsa::settings {

/// Fills in all of draft.config. Throws Error (code 2) where that takes a value that does not fit.
void resolve(Draft& draft);

/// A draft that writes, key by key, YAML which resolves to `config` again.
Draft draft_of(const Config& config);

/// Where a property of a stage comes from: its own entry, an earlier one, or the key it starts
/// with.
struct Origin {
  std::string where;
  std::string name;  ///< "schedule.stages[1].rate", or "attention.compress.rate"
};
Origin origin_of(const Draft& draft, std::size_t stage, const std::string& leaf);

}  // namespace nsa::settings
