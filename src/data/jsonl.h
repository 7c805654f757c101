#pragma once

// One line of a JSONL file.

#include <string>
#include <string_view>

namespace nsa {

struct JsonlText {
  std::string text;
  std::string problem;  ///< what is wrong with the line; empty: nothing
};

/// The string under `key` of the JSON object that `line` is.
JsonlText text_of_line(std::string_view line, const std::string& key);

}  // namespace nsa
