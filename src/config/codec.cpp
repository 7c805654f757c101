#include "config/codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

template <class T>
bool parse_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

int suffix_digits(char letter) {
  return letter == 'K' ? 3 : letter == 'M' ? 6 : letter == 'B' ? 9 : 0;
}

/// "500M", "1.5K": exact, in integers. False where it is no such number or not a whole one.
bool parse_suffixed(const std::string& text, std::int64_t& out) {
  if (text.empty()) return false;
  const auto digits = static_cast<std::size_t>(suffix_digits(text.back()));
  if (digits == 0) return parse_number(text, out);
  const std::string number = text.substr(0, text.size() - 1);
  const std::size_t point = std::min(number.find('.'), number.size());
  std::string fraction = point < number.size() ? number.substr(point + 1) : "";
  if (fraction.size() > digits || fraction.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  fraction.resize(digits, '0');
  return point > 0 && parse_number(number.substr(0, point) + fraction, out);
}

/// "90m", "1h30m": minutes.
bool parse_duration(std::string_view text, double& out) {
  double total = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const char* const last = text.data() + text.size();
    if (error != std::errc() || end == last) return false;
    const double minutes = *end == 's'   ? 1.0 / 60
                           : *end == 'm' ? 1
                           : *end == 'h' ? 60
                           : *end == 'd' ? 1440
                                         : 0;
    if (minutes == 0) return false;
    total += number * minutes;
    text.remove_prefix(static_cast<std::size_t>(end + 1 - text.data()));
  }
  out = total;
  return true;
}

std::string plain_number(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

std::string range_text(const Rules& rules) {
  const bool below = std::isfinite(rules.min);
  const bool above = std::isfinite(rules.max);
  std::string least =
      (rules.open ? "greater than " : "at least ") + (below ? plain_number(rules.min) : "");
  if (below && above) return least + " and at most " + plain_number(rules.max);
  if (below) return least;
  return above ? "at most " + plain_number(rules.max) : "";
}

void check_range(const Value& value, const Rules& rules, double number) {
  const bool low = rules.open ? number <= rules.min : number < rules.min;
  if (low || number > rules.max) refuse(value, rules, range_text(rules));
}

std::string whole_number(const Rules& rules) {
  return rules.suffix ? "a whole number (K, M, B: thousands, millions, billions)"
                      : "a whole number";
}

bool is_plain(const Value& value) {
  return value.kind == Value::Kind::kScalar && !value.quoted;
}

/// Text that needs no quotes in any place of a YAML document.
bool is_plain_word(const std::string& text) {
  static const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return !text.empty() && (text[0] == '/' || letters.find(text[0]) != std::string::npos) &&
         text.find_first_not_of(letters + "0123456789_./-") == std::string::npos &&
         text != "null" && text != "Null" && text != "NULL" && text != "true" && text != "false";
}

/// An empty name in a list of paths would name the folder that it counts from.
void refuse_empty_name(const Value& item, const Rules& rules) {
  if (!rules.path || item.kind != Value::Kind::kScalar || !item.text.empty()) return;
  fail_config(fmt::format("{}: {} is an empty name, or has one as an element; it must be paths",
                          item.where, rules.name));
}

template <class T>
void read_list(const Value& value, const Rules& rules, std::vector<T>& out) {
  out.clear();
  if (value.kind == Value::Kind::kNull) {
    // Of words that were forgotten behind the key it would silently choose none.
    if (rules.choices.empty()) return;
    refuse(value, rules, "a list of " + join_or(rules.choices) + "; [] chooses none");
  }
  if (value.kind == Value::Kind::kMap) refuse(value, rules, "a list such as [a, b]");
  if (value.kind == Value::Kind::kScalar) {
    refuse_empty_name(value, rules);
    read_value(value, rules, out.emplace_back());
    return;
  }
  for (const Value& item : value.items) {
    if (item.kind != Value::Kind::kScalar) {
      fail_config(fmt::format("{}: {} has {} as an element; its elements must be plain values",
                              item.where, rules.name, describe(item)));
    }
    refuse_empty_name(item, rules);
    read_value(item, rules, out.emplace_back());
  }
}

template <class T>
std::string write_list(const std::vector<T>& values, const Rules& rules) {
  Rules element = rules;
  element.none.clear();  // an empty text in a list is a text, not null
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + write_value(value, element);
  return "[" + text + "]";
}

}  // namespace

void refuse(const Value& value, const Rules& rules, const std::string& wanted) {
  fail_config(
      fmt::format("{}: {} is {}; it must be {}", value.where, rules.name, describe(value), wanted));
}

bool is_word(const Value& value, const std::string& word) {
  return value.kind == Value::Kind::kScalar && value.text == word;
}

std::string join_or(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (letter == '\n') {
      quoted += "\\n";
    } else if (letter == '\t') {
      quoted += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      quoted += fmt::format("\\x{:02x}", code);
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

std::size_t read_choice(const Value& value, const Rules& rules) {
  for (std::size_t i = 0; i < rules.choices.size(); ++i) {
    if (is_word(value, rules.choices[i])) return i;
  }
  for (const std::string& word : rules.later) {
    if (!is_word(value, word)) continue;
    fail_config(fmt::format("{}: {}: {} is not in this version; it may be {}", value.where,
                            rules.name, word, join_or(rules.choices)));
  }
  refuse(value, rules, join_or(rules.choices));
}

void read_value(const Value& value, const Rules& rules, std::int64_t& out) {
  std::int64_t read = 0;
  const bool whole = is_plain(value) && (rules.suffix ? parse_suffixed(value.text, read)
                                                      : parse_number(value.text, read));
  if (!whole) {
    const std::string range = range_text(rules);
    refuse(value, rules,
           whole_number(rules) + (range.empty() ? "" : ", " + range) +
               (rules.none == "auto" ? ", or auto" : ""));
  }
  check_range(value, rules, static_cast<double>(read));
  out = read;
}

void read_value(const Value& value, const Rules& rules, std::uint64_t& out) {
  if (!is_plain(value) || !parse_number(value.text, out)) {
    refuse(value, rules, "a whole number from 0 to 2^64 - 1");
  }
}

void read_value(const Value& value, const Rules& rules, double& out) {
  double read = 0;
  const bool number = is_plain(value) && (parse_number(value.text, read) ||
                                          (rules.minutes && parse_duration(value.text, read)));
  if (!number || !std::isfinite(read)) {
    const std::string range = range_text(rules);
    refuse(value, rules,
           (rules.minutes ? "minutes, or a duration such as 90m or 2h" : "a number") +
               (range.empty() ? "" : ", " + range));
  }
  check_range(value, rules, read);
  out = read;
}

void read_value(const Value& value, const Rules& rules, bool& out) {
  if (!is_plain(value) || (value.text != "true" && value.text != "false")) {
    refuse(value, rules, "true or false");
  }
  out = value.text == "true";
}

void read_value(const Value& value, const Rules& rules, std::string& out) {
  if (!rules.choices.empty()) {
    out = rules.choices[read_choice(value, rules)];
  } else if (value.kind == Value::Kind::kNull) {
    out.clear();
  } else if (value.kind == Value::Kind::kScalar) {
    out = value.text;
  } else {
    refuse(value, rules, rules.path ? "a path" : "text");
  }
}

void read_value(const Value& value, const Rules& rules, std::vector<std::string>& out) {
  read_list(value, rules, out);
}
void read_value(const Value& value, const Rules& rules, std::vector<std::int64_t>& out) {
  read_list(value, rules, out);
}

void read_value(const Value& value, const Rules& rules, StepsOrTokens& out) {
  Rules suffixed = rules;
  suffixed.suffix = true;
  read_value(value, suffixed, out.count);
  if (suffix_digits(value.text.back()) == 0) {
    suffixed.max = std::min(rules.max, kMaxSteps);
    check_range(value, suffixed, static_cast<double>(out.count));
  }
  out.in_tokens = out.count > 0 && suffix_digits(value.text.back()) > 0;
}

std::string write_value(std::int64_t value, const Rules& /*rules*/) {
  return std::to_string(value);
}
std::string write_value(std::uint64_t value, const Rules& /*rules*/) {
  return std::to_string(value);
}
std::string write_value(double value, const Rules& /*rules*/) {
  return fmt::format("{}", value);
}
std::string write_value(bool value, const Rules& /*rules*/) {
  return value ? "true" : "false";
}
std::string write_value(const std::string& value, const Rules& rules) {
  if (!rules.choices.empty()) return value;
  if (value.empty() && rules.none == "null") return "null";
  return is_plain_word(value) ? value : quote(value);
}
std::string write_value(const std::vector<std::string>& value, const Rules& rules) {
  return write_list(value, rules);
}
std::string write_value(const std::vector<std::int64_t>& value, const Rules& rules) {
  return write_list(value, rules);
}
std::string write_value(const StepsOrTokens& value, const Rules& /*rules*/) {
  if (!value.in_tokens) return std::to_string(value.count);
  if (value.count % 1000000 == 0) return fmt::format("{}M", value.count / 1000000);
  if (value.count % 1000 == 0) return fmt::format("{}K", value.count / 1000);
  return fmt::format("{}.{:03}K", value.count / 1000, value.count % 1000);
}

std::string type_name(std::int64_t, const Rules& rules) {
  return rules.suffix ? "whole number (K, M, B)" : "whole number";
}
std::string type_name(std::uint64_t, const Rules& /*rules*/) {
  return "whole number";
}
std::string type_name(double, const Rules& rules) {
  return rules.minutes ? "number or duration (90m, 2h)" : "number";
}
std::string type_name(bool, const Rules& /*rules*/) {
  return "true or false";
}
std::string type_name(const std::string&, const Rules& rules) {
  return !rules.choices.empty() ? join_or(rules.choices) : rules.path ? "path" : "text";
}
std::string type_name(const std::vector<std::string>& value, const Rules& rules) {
  static_cast<void>(value);
  return (rules.choices.empty() ? "list of " : "list of: ") + type_name(std::string(), rules) +
         (rules.choices.empty() ? "s" : "");
}
std::string type_name(const std::vector<std::int64_t>&, const Rules& /*rules*/) {
  return "list of whole numbers";
}
std::string type_name(const StepsOrTokens&, const Rules& /*rules*/) {
  return "whole number of steps, or of tokens with K, M, B";
}

}  // namespace nsa::settings
