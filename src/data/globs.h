#pragma once

// Paths and globs that users write, turned into files.

#include <string>
#include <vector>

namespace nsa {

/// What `pattern` (a path, or a glob with * ? [] {} ~) names, sorted by name. Throws Error (code 3)
/// when there is nothing, and lists the nearest names that are there.
std::vector<std::string> expand_glob(const std::string& pattern);

}  // namespace nsa
