#pragma once

// A YAML document as the configuration sees it: plain values that know where they were written.

#include <cstdint>
#include <string>
#include <vector>

namespace nsa::settings {

struct Value {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string name;          ///< of a map's entry: its key
  std::string name_where;    ///< of a map's entry: where the key stands
  std::string text;          ///< of a scalar, after ${env:NAME} substitution
  bool quoted = false;       ///< the scalar was written in quotes: it is a string, never a number
  std::string where;         ///< "run.yaml:3:11" (both from 1) or "override 2"
  std::vector<Value> items;  ///< of a list its elements, of a map its entries, in written order
};

/// What a message calls a value: its text, shortened, or its kind.
std::string describe(const Value& value);

}  // namespace nsa::settings
