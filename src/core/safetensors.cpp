#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace nsa {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

/// No real header comes near this; a larger length means that the file is something else.
constexpr std::uint64_t kLargestHeader = std::uint64_t{100} << 20U;
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void fail_file(const std::string& path, const std::string& what) {
  fail_data(path + " is not a sound safetensors file: " + what);
}

/// Bytes of an element; 0 for a name that the format does not have.
std::int64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> known = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  const auto found = known.find(dtype);
  return found == known.end() ? 0 : found->second;
}

/// An extent or offset that the header gives. No real one comes near the limit.
std::int64_t read_count(const std::string& path, const std::string& name, const json& value) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50U;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
    // Only numbers are shown: dump() calls itself for each level, and a list may have any number.
    const std::string found = value.is_number() ? value.dump() : value.type_name();
    fail_file(path, "tensor '" + name + "' has the extent or offset " + found +
                        ", which is no whole number from 0 to 2^50");
  }
  return value.get<std::int64_t>();
}

SafetensorsEntry read_entry(const std::string& path, const std::string& name, const json& value,
                            std::int64_t data_bytes) {
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
      !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
    fail_file(path, "tensor '" + name + "' lacks a dtype, a shape or two data_offsets");
  }
  SafetensorsEntry entry;
  entry.dtype = value["dtype"].get<std::string>();
  const std::int64_t size = element_bytes(entry.dtype);
  if (size == 0) {
    fail_file(path, "tensor '" + name + "' has the unknown dtype '" + entry.dtype + "'");
  }
  entry.begin = read_count(path, name, value["data_offsets"][0]);
  entry.end = read_count(path, name, value["data_offsets"][1]);
  if (entry.end > data_bytes) {
    fail_file(path, "tensor '" + name + "' ends at byte " + std::to_string(entry.end) +
                        " of the data, which has " + std::to_string(data_bytes) +
                        " (is the file cut short?)");
  }
  std::int64_t bytes = size;
  for (const json& extent : value["shape"]) {
    entry.shape.push_back(read_count(path, name, extent));
    const std::int64_t last = entry.shape.back();
    if (last > 0 && bytes > (std::int64_t{1} << 62U) / last) {
      fail_file(path, "tensor '" + name + "' is larger than any file");
    }
    bytes *= last;
  }
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    fail_file(path, "tensor '" + name + "' " + entry.describe() + " takes " +
                        std::to_string(bytes) + " bytes, but its data_offsets are " +
                        std::to_string(entry.begin) + " and " + std::to_string(entry.end));
  }
  return entry;
}

/// The tensors must cover the data: what two of them share, or none has, is damage.
void check_cover(const std::string& path, const std::map<std::string, SafetensorsEntry>& entries,
                 std::int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  order.reserve(entries.size());
  for (const auto& [name, entry] : entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::int64_t covered = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != covered) {
      fail_file(path, "tensor '" + *name + "' begins at byte " + std::to_string(entry->begin) +
                          " of the data, where the one before it ends at " +
                          std::to_string(covered));
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    fail_file(path, "its tensors take " + std::to_string(covered) + " bytes of data, but " +
                        std::to_string(data_bytes) + " follow the header");
  }
}

std::vector<char> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_data("cannot open " + path + "; it must be a readable file");
  std::vector<char> bytes;
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  while (in) {
    const std::size_t used = bytes.size();
    bytes.resize(used + kPiece);
    in.read(bytes.data() + used, static_cast<std::streamsize>(kPiece));
    bytes.resize(used + static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad() || !in.eof()) fail_data("cannot read " + path + "; it must be a readable file");
  return bytes;
}

template <class T>
std::vector<double> widen(const char* bytes, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

}  // namespace

std::int64_t SafetensorsEntry::count() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::string SafetensorsEntry::describe() const {
  std::string text = dtype + "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

Safetensors::Safetensors(const std::string& path) : path_(path) {
  std::vector<char> bytes = read_bytes(path);
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    fail_file(path, "it has " + std::to_string(bytes.size()) + " bytes, fewer than 8");
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kLargestHeader || length > bytes.size() - sizeof(length)) {
    fail_file(path, "its first 8 bytes ask for a header of " + std::to_string(length) +
                        " bytes, but the file has " + std::to_string(bytes.size()));
  }
  const char* begin = bytes.data() + sizeof(length);
  const char* data = begin + length;
  const std::int64_t data_bytes = static_cast<std::int64_t>(bytes.size() - sizeof(length) - length);
  const json header = json::parse(begin, data, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) fail_file(path, "its header is not a JSON object");
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadata) {
      entries_.emplace(name, read_entry(path, name, value, data_bytes));
      continue;
    }
    if (!value.is_object()) fail_file(path, "its __metadata__ is not an object of strings");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail_file(path, "__metadata__ '" + key + "' is not a string");
      metadata_.emplace(key, text.get<std::string>());
    }
  }
  check_cover(path, entries_, data_bytes);
  data_.assign(data, data + data_bytes);
}

const SafetensorsEntry& Safetensors::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail_data(path_ + " has no tensor '" + name + "'");
  return found->second;
}

std::vector<double> Safetensors::values(const std::string& name) const {
  const SafetensorsEntry& found = entry(name);
  const char* bytes = data_.data() + found.begin;
  if (found.dtype == "F32") return widen<float>(bytes, found.count());
  if (found.dtype == "F64") return widen<double>(bytes, found.count());
  if (found.dtype == "I32") return widen<std::int32_t>(bytes, found.count());
  if (found.dtype == "I64") return widen<std::int64_t>(bytes, found.count());
  fail_data(path_ + ": tensor '" + name + "' is " + found.describe() +
            "; only F32, F64, I32 and I64 can be read");
}

}  // namespace nsa
