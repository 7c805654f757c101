#pragma once

// MappedFile: a whole file as read-only memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace nsa {

/// Move-only; the address of the bytes survives a move. A file that is cut off, or that its disk
/// refuses, while its bytes are in use ends the process with a sentence and exit code 3.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error (code 3) when the file cannot be opened, read or is not a regular file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace nsa
