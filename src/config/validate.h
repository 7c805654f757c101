#pragma once

// What single values cannot tell: whether the resolved configuration fits together.

#include <string>
#include <vector>

#include "config/draft.h"

namespace nsa::settings {

/// Throws Error (code 2) for the first thing that cannot work.
void validate(const Draft& draft);

/// What works but is probably not meant.
std::vector<std::string> find_warnings(const Draft& draft);

}  // namespace nsa::settings
