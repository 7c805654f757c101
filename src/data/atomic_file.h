#pragma once

// AtomicFile: a file that stands under its name either complete or not at all.

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Writes `<path>.partial`, which commit() renames to `path`. Without commit() the partial file is
/// removed. Every failure throws Error (code 1) that names the file, the reason
/// and what to do.
class AtomicFile {
 public:
  /// Makes the folders above `path` and replaces a partial file that a killed run left.
  explicit AtomicFile(std::string path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, std::int64_t bytes);
  /// Overwrites bytes that were written before.
  void write_at(std::int64_t offset, const void* data, std::int64_t bytes);
  /// Brings everything to the disk; nothing can be written afterwards.
  void close();
  /// close(), then the rename, which is brought to the disk too.
  void commit();

  const std::string& path() const { return path_; }

 private:
  void flush();
  [[noreturn]] void fail_writing(const char* what) const;

  std::string path_;
  std::string partial_;
  int fd_ = -1;
  std::vector<char> buffer_;
};

/// "REASON; what to do about it", for an errno of making or writing a file. `elsewhere`: what names
/// another place, such as "--out".
std::string write_advice(int reason, const std::string& elsewhere);

}  // namespace nsa
