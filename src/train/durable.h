#pragma once

// Files that are on the disk once the call returns: what a checkpoint is made of.

#include <cstdint>
#include <filesystem>
#include <string>

namespace nsa {

/// What names another place for the files of a run, for write_advice (data/atomic_file.h).
inline constexpr const char* kRunPlaces = "run.out_dir or checkpoint.dir";

/// Writes one file from front to back and keeps its size and CRC-32. Every failure throws Error
/// (code 4) with the path, the system's reason and what to do.
class DurableFile {
 public:
  explicit DurableFile(const std::filesystem::path& path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::int64_t bytes);
  /// Flushes to the disk and closes: only then is the file good.
  void finish();
  std::int64_t bytes() const { return bytes_; }
  std::uint32_t checksum() const { return checksum_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
  std::uint32_t checksum_ = 0;
};

/// Creates or replaces a small file; readers see the old or the new one, never a part.
void replace_file(const std::filesystem::path& path, const std::string& text);
/// Makes renames and creations inside `folder` last. Throws Error (code 4).
void sync_folder(const std::filesystem::path& folder);
/// The whole file. Throws Error (code 4).
std::string read_file(const std::filesystem::path& path);
/// CRC-32 of a file's contents, read in pieces. Throws Error (code 4).
std::uint32_t file_checksum(const std::filesystem::path& path);
/// Makes the folder and its parents and proves that files can be made in it. Throws Error (code 4).
void make_writable_folder(const std::filesystem::path& folder);
/// Bytes that this process may still write on the file system that holds `folder`.
std::int64_t free_bytes(const std::filesystem::path& folder);
/// The first of STEM.stale-1EXT, STEM.stale-2EXT, ... beside `path` that does not exist.
std::filesystem::path stale_name(const std::filesystem::path& path);

}  // namespace nsa
