#include "train/run_lock.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include "core/error.h"
#include "data/atomic_file.h"

namespace nsa {
namespace {

std::string owner_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string owner;
  std::getline(in, owner);
  return owner.empty() ? "another process" : owner;
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on host " + host.data();
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, std::chrono::milliseconds patience) {
  const std::filesystem::path path = folder / "lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) {
    fail_checkpoint("cannot create " + path.string() + ": " + write_advice(errno, "run.out_dir"));
  }
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= give_up) {
      ::close(file_);
      fail_runtime("run.out_dir " + folder.string() + " is in use by " + owner_of(path) +
                   "; stop that run or choose another run.out_dir");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // Advisory text: the lock holds whether or not the owner's name could be written.
  const std::string owner = this_process() + "\n";
  const bool named = ::ftruncate(file_, 0) == 0 && ::write(file_, owner.data(), owner.size()) ==
                                                       static_cast<ssize_t>(owner.size());
  static_cast<void>(named);
}

RunLock::~RunLock() {
  ::close(file_);
}

}  // namespace nsa
