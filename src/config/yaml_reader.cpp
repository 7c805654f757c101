#include "config/yaml_reader.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unordered_map>

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/format.h"

namespace nsa::settings {
namespace {

/// Where values come from: a file, whose positions are told, or an override, which has none.
struct Source {
  std::string name;
  bool has_lines = true;

  std::string at(const YAML::Mark& mark) const {
    if (!has_lines || mark.is_null()) return name;
    return fmt::format("{}:{}:{}", name, mark.line + 1, mark.column + 1);  // yaml-cpp: from 0
  }
};

/// Puts the environment's values in place of ${env:NAME}. Says whether there was any.
bool substitute_environment(std::string& text, const std::string& where) {
  static const std::string open = "${env:";
  bool found = false;
  std::size_t at = 0;
  while ((at = text.find(open, at)) != std::string::npos) {
    const std::size_t close = text.find('}', at);
    if (close == std::string::npos) {
      fail_config(fmt::format("{}: {} has no closing brace", where, text.substr(at)));
    }
    const std::string name = text.substr(at + open.size(), close - at - open.size());
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) {
      fail_config(fmt::format("{}: the environment variable {} of ${{env:{}}} is not set", where,
                              name, name));
    }
    text.replace(at, close + 1 - at, value);
    at += std::string(value).size();
    found = true;
  }
  return found;
}

void refuse_duplicates(const Value& map) {
  std::unordered_map<std::string_view, const Value*> first;
  for (const Value& item : map.items) {
    const auto [known, is_new] = first.emplace(item.name, &item);
    if (is_new) continue;
    fail_config(fmt::format("{}: {} is set twice (first at {}); keep one of them", item.name_where,
                            item.name, known->second->name_where));
  }
}

/// Copies a document into Values. Aliases are copied too, so depth and size are limited: one that
/// contains itself has no end, and a chain of them grows beyond all measure.
class Converter {
 public:
  explicit Converter(const Source& source) : source_(&source) {}

  /// `fallback`: the place told for a node that yaml-cpp gives none.
  Value convert(const YAML::Node& node, const std::string& fallback, int depth = 0) {
    Value value;
    value.where = node.IsNull() || node.Mark().is_null() ? fallback : source_->at(node.Mark());
    if (depth > kMaxDepth || ++count_ > kMaxValues) {
      fail_config(fmt::format("{}: nested too deeply or too large for a configuration", fallback));
    }
    if (node.IsScalar()) {
      value.kind = Value::Kind::kScalar;
      value.text = node.Scalar();
      value.quoted = node.Tag() != "?";
      // In a flow map ${env:X} has to stand in quotes, so what it becomes is typed like plain text.
      if (substitute_environment(value.text, value.where)) value.quoted = false;
    } else if (node.IsSequence()) {
      value.kind = Value::Kind::kList;
      for (const auto& item : node) value.items.push_back(convert(item, value.where, depth + 1));
    } else if (node.IsMap()) {
      value.kind = Value::Kind::kMap;
      for (const auto& entry : node) value.items.push_back(convert_entry(entry, depth + 1));
      refuse_duplicates(value);
    }
    return value;
  }

 private:
  static constexpr int kMaxDepth = 32;
  static constexpr std::int64_t kMaxValues = 100000;

  Value convert_entry(const YAML::const_iterator::value_type& entry, int depth) {
    const std::string place = source_->at(entry.first.Mark());
    if (!entry.first.IsScalar()) {
      fail_config(place + ": a key must be a word, not a list, a map or null");
    }
    Value value = convert(entry.second, place, depth);
    value.name = entry.first.Scalar();
    value.name_where = place;
    return value;
  }

  const Source* source_;
  std::int64_t count_ = 0;
};

Value parse_text(const std::string& text, const Source& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      fail_config(fmt::format("{}: holds {} YAML documents; a configuration is one", source.name,
                              documents.size()));
    }
    return documents.empty() ? Value{} : Converter(source).convert(documents.front(), source.name);
  } catch (const YAML::DeepRecursion& broken) {
    fail_config(source.at(broken.mark) + ": nested too deeply for a configuration");
  } catch (const YAML::Exception& broken) {
    fail_config(fmt::format("{}: broken YAML: {}", source.at(broken.mark), broken.msg));
  }
}

}  // namespace

std::string describe(const Value& value) {
  constexpr std::size_t kLongest = 60;
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kList:
      return value.items.empty() ? "an empty list" : "a list";
    case Value::Kind::kMap:
      return "a map";
    case Value::Kind::kScalar:
      break;
  }
  const std::string text =
      value.text.size() > kLongest ? value.text.substr(0, kLongest) + "..." : value.text;
  return value.quoted || text.empty() ? "\"" + text + "\"" : text;
}

namespace {

/// The bytes of a configuration file. A pipe could be waited for and a device read for ever, so
/// neither is opened; files of /proc have size 0 and any length, so the limit counts what is read.
std::string read_text(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::size_t kMostBytes = std::size_t{16} << 20U;
  std::error_code unreadable;
  const fs::file_status status = fs::status(path, unreadable);
  if (fs::is_directory(status)) fail_config(path + ": is a folder; a configuration is a YAML file");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail_config(path +
                ": is a device, pipe or socket; a configuration is a regular file, so write it to "
                "one and name that");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_config(path + ": cannot be read; is there such a configuration file?");
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail_config(path + ": cannot be read to its end; copy the file and try again");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    fail_config(fmt::format(
        "{}: is longer than {} MiB, which no configuration is; did you mean another file?", path,
        kMostBytes >> 20U));
  }
  return text;
}

}  // namespace

Value read_yaml_file(const std::string& path) {
  Value value = parse_text(read_text(path), {.name = path});
  if (value.kind == Value::Kind::kNull) {
    fail_config(path + ": is empty; a configuration needs at least data.train");
  }
  if (value.kind != Value::Kind::kMap) {
    fail_config(fmt::format("{}: holds {}; a configuration is a map of sections such as model:",
                            value.where, describe(value)));
  }
  return value;
}

Value read_yaml_text(const std::string& text, const std::string& name) {
  return parse_text(text, {.name = name});
}

Value read_override(const std::string& text, int number) {
  const std::string place = fmt::format("override {}", number);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail_config(
        fmt::format("{}: \"{}\" must read key=value, such as train.steps=100", place, text));
  }
  Value value = parse_text(text.substr(equals + 1), {.name = place, .has_lines = false});
  value.name = text.substr(0, equals);
  value.name_where = place;
  value.where = place;
  return value;
}

}  // namespace nsa::settings
