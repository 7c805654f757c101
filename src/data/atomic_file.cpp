#include "data/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace nsa {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
constexpr const char* kElsewhere = "--out";

}  // namespace

std::string write_advice(int reason, const std::string& elsewhere) {
  const auto advice = [reason] {
    switch (reason) {
      case ENOSPC:
      case EDQUOT:
      case EFBIG:
        return "make room";
      case EACCES:
      case EPERM:
      case EROFS:
        return "allow writing there";
      case ENOTDIR:
      case EEXIST:
      case EISDIR:
      case ELOOP:
        return "move away what has that name";
      default:
        return "check the disk";
    }
  };
  return std::string(std::strerror(reason)) + "; " + advice() + ", or choose another " + elsewhere;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code error;
  // The rename would put a file in the place of a device such as /dev/null.
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error)) {
    partial_.clear();
    fail_runtime(path_ + ": is not a regular file; name a file to be written");
  }
  error.clear();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    fail_runtime(folder.string() + ": cannot be made: " + write_advice(error.value(), kElsewhere));
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_writing("cannot be opened for writing");
  buffer_.reserve(kBufferBytes);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void AtomicFile::fail_writing(const char* what) const {
  fail_runtime(partial_ + ": " + what + ": " + write_advice(errno, kElsewhere));
}

void AtomicFile::flush() {
  const char* at = buffer_.data();
  std::size_t left = buffer_.size();
  while (left > 0) {
    const ssize_t written = ::write(fd_, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_writing("cannot be written");
    at += written;
    left -= static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::int64_t bytes) {
  check(fd_ >= 0, "AtomicFile: written after close");
  const char* from = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::write_at(std::int64_t offset, const void* data, std::int64_t bytes) {
  check(fd_ >= 0, "AtomicFile: written after close");
  flush();
  if (::pwrite(fd_, data, static_cast<std::size_t>(bytes), offset) != bytes) {
    fail_writing("cannot be written");
  }
}

void AtomicFile::close() {
  if (fd_ < 0) return;
  flush();
  if (::fsync(fd_) != 0) fail_writing("cannot be brought to the disk");
  if (::close(std::exchange(fd_, -1)) != 0) fail_writing("cannot be closed");
  buffer_ = {};
}

void AtomicFile::commit() {
  close();
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail_writing("cannot be renamed");
  partial_.clear();
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may be written but not read: nothing more can be done
  ::fsync(fd);
  ::close(fd);
}

}  // namespace nsa
