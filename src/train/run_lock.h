#pragma once

// RunLock: one run at a time in an output folder.

#include <chrono>
#include <filesystem>

namespace nsa {

/// Holds an flock on <folder>/lock for its lifetime; the kernel drops it with the process, however
/// that ends. The file names the owner.
class RunLock {
 public:
  /// Waits up to `patience` for an owner that is just leaving, then throws Error (code 1) with the
  /// owner's process id and host.
  RunLock(const std::filesystem::path& folder, std::chrono::milliseconds patience);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace nsa
