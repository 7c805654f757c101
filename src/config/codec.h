#pragma once

// Values to C++ and back, type by type, with the checks that one value alone allows.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "config/config.h"
#include "config/value.h"

namespace nsa::settings {

/// Steps of a run, at most.
inline constexpr double kMaxSteps = 1 << 30;

/// What a key accepts, beyond its C++ type.
struct Rules {
  std::string name{};  ///< dotted: "attention.compress.rate"
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open = false;                   ///< min itself is not allowed
  std::string none = "null";           ///< the word for an empty optional
  std::vector<std::string> choices{};  ///< the only words allowed; of an enum, in its order
  std::vector<std::string> later{};    ///< words that another version will allow
  bool suffix = false;                 ///< K, M and B are thousands, millions and billions
  bool minutes = false;                ///< 90m, 2h, 1h30m, 45s, 1d
  bool path = false;                   ///< counts from where it was written
  bool shared = true;                  ///< part of the fingerprint
  std::string unit{};
};

// Each read throws Error (code 2) that names the place, the key, what was found and wanted.
void read_value(const Value& value, const Rules& rules, std::int64_t& out);
void read_value(const Value& value, const Rules& rules, std::uint64_t& out);
void read_value(const Value& value, const Rules& rules, double& out);
void read_value(const Value& value, const Rules& rules, bool& out);
/// Null is the empty string where rules.none is "null" and there are no choices.
void read_value(const Value& value, const Rules& rules, std::string& out);
/// One value is a list of one; null is the empty list, but not of words to choose from.
void read_value(const Value& value, const Rules& rules, std::vector<std::string>& out);
void read_value(const Value& value, const Rules& rules, std::vector<std::int64_t>& out);
/// Steps, or tokens when written with a suffix.
void read_value(const Value& value, const Rules& rules, StepsOrTokens& out);

// YAML that reads back to the same value.
std::string write_value(std::int64_t value, const Rules& rules);
std::string write_value(std::uint64_t value, const Rules& rules);
std::string write_value(double value, const Rules& rules);
std::string write_value(bool value, const Rules& rules);
std::string write_value(const std::string& value, const Rules& rules);
std::string write_value(const std::vector<std::string>& value, const Rules& rules);
std::string write_value(const std::vector<std::int64_t>& value, const Rules& rules);
std::string write_value(const StepsOrTokens& value, const Rules& rules);

/// "where: name is found; it must be wanted".
[[noreturn]] void refuse(const Value& value, const Rules& rules, const std::string& wanted);
/// The index of the value among rules.choices.
std::size_t read_choice(const Value& value, const Rules& rules);
bool is_word(const Value& value, const std::string& word);
/// "a", "a or b", "a, b or c".
std::string join_or(const std::vector<std::string>& words);
/// In double quotes, with escapes.
std::string quote(const std::string& text);

// What the reference calls the type of a key.
std::string type_name(std::int64_t, const Rules& rules);
std::string type_name(std::uint64_t, const Rules& rules);
std::string type_name(double, const Rules& rules);
std::string type_name(bool, const Rules& rules);
std::string type_name(const std::string&, const Rules& rules);
std::string type_name(const std::vector<std::string>&, const Rules& rules);
std::string type_name(const std::vector<std::int64_t>&, const Rules& rules);
std::string type_name(const StepsOrTokens&, const Rules& rules);

template <class T>
void read_value(const Value& value, const Rules& rules, std::optional<T>& out) {
  if (value.kind == Value::Kind::kNull ? rules.none == "null" : is_word(value, rules.none)) {
    out.reset();
    return;
  }
  T read{};
  read_value(value, rules, read);
  out = read;
}
template <class T>
std::string write_value(const std::optional<T>& value, const Rules& rules) {
  return value ? write_value(*value, rules) : rules.none;
}
template <class T>
std::string type_name(const std::optional<T>&, const Rules& rules) {
  return type_name(T{}, rules) + ", or " + rules.none;
}

template <class E>
requires std::is_enum_v<E>
void read_value(const Value& value, const Rules& rules, E& out) {
  out = static_cast<E>(read_choice(value, rules));
}
template <class E>
requires std::is_enum_v<E> std::string write_value(E value, const Rules& rules) {
  return rules.choices.at(static_cast<std::size_t>(value));
}
template <class E>
requires std::is_enum_v<E> std::string type_name(E, const Rules& rules) {
  return join_or(rules.choices);
}

}  // namespace nsa::settings
