#pragma once

// Reader of .safetensors files: a header of JSON, then the bytes of all tensors.
// Format: 8 bytes little-endian length of the header; the header, an object from tensor name to
// {dtype, shape, data_offsets [begin, end)} and "__metadata__" to an object of strings; the data,
// which the tensors cover without gap or overlap.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nsa {

struct SafetensorsEntry {
  std::string dtype;                ///< as in the file: "F32", "I32", ...
  std::vector<std::int64_t> shape;  ///< empty for a scalar
  std::int64_t begin = 0;           ///< first byte within the data
  std::int64_t end = 0;

  std::int64_t count() const;
  /// "F32[96, 4, 32]", for messages.
  std::string describe() const;
};

/// A whole file, read and checked by the constructor. Every failure is an Error of exit code 3
/// whose one sentence names the file.
class Safetensors {
 public:
  explicit Safetensors(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// By name, in order.
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Throws when there is no such tensor.
  const SafetensorsEntry& entry(const std::string& name) const;
  /// The elements of an F32, F64, I32 or I64 tensor as double; throws for other types.
  std::vector<double> values(const std::string& name) const;

 private:
  std::string path_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::vector<char> data_;
};

}  // namespace nsa
