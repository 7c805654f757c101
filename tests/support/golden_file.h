#pragma once

// The golden files of the tests, and altered copies of them.

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "core/safetensors.h"

namespace nsa::test {

inline std::string golden_path(const std::string& name) {
  return std::string(NSA_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors";
}

/// A copy to alter, in a file that is gone when this is.
class GoldenCopy {
 public:
  explicit GoldenCopy(const std::string& name) : original_(golden_path(name)) {
    std::ifstream in(original_.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    header_ = bytes.substr(sizeof(length), length);
    data_ = bytes.substr(sizeof(length) + length);
    path_ = std::filesystem::temp_directory_path() /
            ("nsa_golden_" + std::to_string(::getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name +
             ".safetensors");
  }
  GoldenCopy(const GoldenCopy&) = delete;
  GoldenCopy& operator=(const GoldenCopy&) = delete;
  ~GoldenCopy() { std::filesystem::remove(path_); }

  /// The first `from` of the header becomes `to`.
  void replace(const std::string& from, const std::string& to) {
    const std::size_t at = header_.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    header_.replace(at, from.size(), to);
  }
  /// Changes the element of largest finite magnitude by `factor`; false where all are zero.
  bool scale_largest(const std::string& tensor, float factor) {
    const SafetensorsEntry& entry = original_.entry(tensor);
    const std::vector<double> values = original_.values(tensor);
    std::size_t largest = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]) || std::abs(values[i]) <= magnitude) continue;
      magnitude = std::abs(values[i]);
      largest = i;
    }
    if (magnitude == 0 || entry.dtype != "F32") return false;
    const float value = static_cast<float>(values[largest]) * factor;
    std::memcpy(data_.data() + entry.begin + largest * sizeof(value), &value, sizeof(value));
    return true;
  }
  /// Element 0 of an I32 tensor.
  void set_first(const std::string& tensor, std::int32_t value) {
    std::memcpy(data_.data() + original_.entry(tensor).begin, &value, sizeof(value));
  }
  const Safetensors& original() const { return original_; }
  /// Writes the file.
  std::string path() const {
    const std::uint64_t length = header_.size();
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header_ << data_;
    return path_.string();
  }

 private:
  Safetensors original_;
  std::string header_, data_;
  std::filesystem::path path_;
};

}  // namespace nsa::test
