#pragma once

// ByteSource: the bytes of a file, unpacked where it is compressed.

#include <cstdint>
#include <memory>
#include <string>

namespace nsa {

/// Reads forward. The kind of compression (gzip, zstd, none) is told by the first bytes, not by the
/// name.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Up to `bytes` bytes; 0 only at the end. Throws Error (code 3) naming the file when it cannot
  /// be read, or its compressed data is damaged or cut off.
  virtual std::int64_t read(char* out, std::int64_t bytes) = 0;
};

/// Throws Error (code 3) for what cannot be opened and for what is no regular file.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

/// Splits a ByteSource at '\n' alone: U+2028 and its like are text.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source);
  /// The next line without its '\n' (the last one may have none). False at the end.
  bool next(std::string& line);

 private:
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  std::size_t at_ = 0;
};

}  // namespace nsa
