#include "train/durable.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include "core/checksum.h"
#include "core/error.h"
#include "data/atomic_file.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_system(const std::string& what, const fs::path& path) {
  const int reason = errno;
  fail_checkpoint(what + " " + path.string() + ": " + write_advice(reason, kRunPlaces));
}

}  // namespace

DurableFile::DurableFile(const fs::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_ < 0) fail_system("cannot create", path_);
}

DurableFile::~DurableFile() {
  if (file_ >= 0) ::close(file_);
}

void DurableFile::write(const void* data, std::int64_t bytes) {
  checksum_ = crc32(checksum_, data, bytes);
  bytes_ += bytes;
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, at, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system("cannot write", path_);
    at += written;
    bytes -= written;
  }
}

void DurableFile::finish() {
  if (::fsync(file_) != 0) fail_system("cannot flush", path_);
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0) fail_system("cannot close", path_);
}

void replace_file(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".tmp";
  DurableFile file(temporary);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_system("cannot replace", path);
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

void sync_folder(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail_system("cannot open folder", folder);
  const int synced = ::fsync(file);
  const int reason = errno;
  ::close(file);
  // Some network file systems have no fsync for folders and say EINVAL; their renames are durable.
  if (synced != 0 && reason != EINVAL) {
    errno = reason;
    fail_system("cannot flush folder", folder);
  }
}

namespace {

[[noreturn]] void fail_unreadable(const fs::path& path) {
  fail_checkpoint("cannot read " + path.string() + "; check its permissions and the disk");
}

// Opening a folder succeeds and reading it does not; opening a pipe may wait for ever.
void check_regular(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    fail_checkpoint("cannot read " + path.string() +
                    ": it is not a regular file; move it away, it is not of this program");
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  check_regular(path);
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) fail_unreadable(path);
  return text;
}

std::uint32_t file_checksum(const fs::path& path) {
  check_regular(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_unreadable(path);
  std::vector<char> piece(std::size_t{1} << 20U);
  std::uint32_t checksum = 0;
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    checksum = crc32(checksum, piece.data(), in.gcount());
  }
  if (in.bad()) fail_unreadable(path);
  return checksum;
}

void make_writable_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail_checkpoint("cannot create folder " + folder.string() + ": " +
                    write_advice(error.value(), kRunPlaces));
  const fs::path probe = folder / ".writable";
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail_system("cannot write in folder", folder);
  ::close(file);
  ::unlink(probe.c_str());
}

std::int64_t free_bytes(const fs::path& folder) {
  struct statvfs state = {};
  if (::statvfs(folder.c_str(), &state) != 0)
    fail_system("cannot ask for the free space of", folder);
  return static_cast<std::int64_t>(state.f_bavail) * static_cast<std::int64_t>(state.f_frsize);
}

fs::path stale_name(const fs::path& path) {
  for (std::int64_t n = 1;; ++n) {
    fs::path name = path.parent_path() / (path.stem().string() + ".stale-" + std::to_string(n) +
                                          path.extension().string());
    std::error_code error;
    if (!fs::exists(fs::symlink_status(name, error))) return name;
  }
}

}  // namespace nsa
