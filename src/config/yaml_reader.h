#pragma once

// Reads YAML text into Values. The only place that knows yaml-cpp.

#include <string>

#include "config/value.h"

namespace nsa::settings {

/// The document of `path`: a map. Throws Error (code 2), with line and column from 1, for what
/// cannot be read, is no regular file, is longer than 16 MiB, is empty, is not one YAML map, or
/// names a key twice.
Value read_yaml_file(const std::string& path);

/// The document that is `text`; messages call it `name`. Throws Error (code 2).
Value read_yaml_text(const std::string& text, const std::string& name);

/// The value of an override `a.b=c`, c read as YAML; its name is "a.b" and its place "override
/// <number>". Throws Error (code 2).
Value read_override(const std::string& text, int number);

}  // namespace nsa::settings
