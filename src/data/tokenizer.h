#pragma once

// Tokenizer: a sentencepiece model.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

class Tokenizer {
 public:
  /// Throws Error (code 3) when the file is missing or is no sentencepiece model.
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  std::int64_t vocab_size() const;
  std::int64_t eos_id() const;  ///< -1: the model has none
  /// CRC-32 of the model file: shards remember which tokenizer made them.
  std::uint32_t fingerprint() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nsa
