#include "data/mapped_file.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace nsa {
namespace {

/// Memory that shows a file, and what to say when the file cannot be read there any more.
struct Shown {
  std::atomic<const std::byte*> begin = nullptr;  ///< null: free for another file
  std::size_t size = 0;
  std::string message;
  Shown* next = nullptr;
};

// Only ever grows at its head, since a signal handler walks it.
std::atomic<Shown*> all_shown = nullptr;
std::mutex shown_changes;

/// A file that was cut off, or that its disk refuses, cannot be told by a return value: the read is
/// a load, and the kernel answers with SIGBUS. Calls only what a signal handler may call.
void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  for (const Shown* shown = all_shown; shown != nullptr; shown = shown->next) {
    const std::byte* const begin = shown->begin;
    if (begin == nullptr || at < begin || at >= begin + shown->size) continue;
    static_cast<void>(!::write(STDERR_FILENO, shown->message.data(), shown->message.size()));
    ::_exit(static_cast<int>(ExitCode::kData));
  }
  std::signal(signal, SIG_DFL);  // not ours: the same access ends the process as it always did
}

void show(const std::byte* begin, std::size_t size, const std::string& path) {
  const std::lock_guard lock(shown_changes);
  Shown* free = all_shown;
  while (free != nullptr && free->begin != nullptr) free = free->next;
  if (free == nullptr) {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
    // Stays for the life of the process, reachable from all_shown.
    free = std::make_unique<Shown>().release();
    free->next = all_shown;
    all_shown = free;
  }
  free->size = size;
  free->message = "error: " + path +
                  ": cannot be read any more: it was cut off or its disk failed while it was in "
                  "use; restore the file, and run the same command again\n";
  free->begin = begin;
}

void forget(const std::byte* begin) {
  const std::lock_guard lock(shown_changes);
  for (Shown* shown = all_shown; shown != nullptr; shown = shown->next) {
    if (shown->begin == begin) shown->begin = nullptr;
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Without O_NONBLOCK a pipe that nobody writes to would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_data(path + ": cannot be opened: " + std::strerror(errno));
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    fail_data(path + ": is not a regular file; name a file or a glob of files");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int reason = errno;
    ::close(fd);
    if (mapped == MAP_FAILED) fail_data(path + ": cannot be mapped: " + std::strerror(reason));
    data_ = static_cast<const std::byte*>(mapped);
    show(data_, size_, path);
  } else {
    ::close(fd);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget(data_);
  // munmap takes a mutable pointer; the bytes are only given back.
  ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace nsa
