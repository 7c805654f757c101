#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <unistd.h>
#include <utility>

#include "core/device.h"
#include "core/error.h"

namespace nsa {
namespace {

// Workers of one device allocate side by side (CPU scratch memory); the counts are shared.
std::mutex count_mutex;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

void* Device::allocate(std::int64_t bytes) {
  check(bytes >= 0, "Device::allocate: negative size");
  void* data = do_allocate(std::max<std::int64_t>(bytes, 1));
  const std::lock_guard lock(count_mutex);
  ++allocations_;
  allocated_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, allocated_bytes_);
  return data;
}

void Device::release(void* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  do_release(data);
  const std::lock_guard lock(count_mutex);
  allocated_bytes_ -= bytes;
}

namespace {

/// What is queued on a CPU is done when the call returns: the wall clock tells.
class WallStopwatch final : public Stopwatch {
 public:
  void start() override { begin_ = Clock::now(); }
  void stop() noexcept override {
    seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  double take_seconds() override { return std::exchange(seconds_, 0.0); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<Stopwatch> Device::make_stopwatch() {
  return std::make_unique<WallStopwatch>();
}

namespace {

constexpr std::int64_t kAlignment = 64;  // one cache line, and the widest vector register

/// Bytes of memory of the machine, or of its control group where that has fewer.
std::int64_t memory_of_host() {
  std::int64_t bytes = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::int64_t most = 0;
  if (limit >> most && most > 0) bytes = std::min(bytes, most);  // "max" is no number
  return bytes;
}

class CpuDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  void copy_from_host(void* to, const void* host, std::int64_t bytes) override {
    copy(to, host, bytes);
  }
  void copy_to_host(void* host, const void* from, std::int64_t bytes) override {
    copy(host, from, bytes);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
  void fill_zero(void* data, std::int64_t bytes) override {
    if (bytes > 0) std::memset(data, 0, static_cast<std::size_t>(bytes));
  }
  void synchronize() override {}

 protected:
  void* do_allocate(std::int64_t bytes) override {
    const std::int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    // The system promises more than it has and ends the program once the pages are touched.
    const bool fits = allocated() <= memory_ - std::min(rounded, memory_);
    void* data = nullptr;
    if (fits) data = std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded));
    if (data == nullptr) {
      fail_runtime("out of memory: " + std::to_string(bytes >> 20) +
                   " MiB more are needed on the host, which has " + std::to_string(memory_ >> 20) +
                   " MiB in all; lower train.micro_batch or the sizes of the model, or set "
                   "memory.recompute: full");
    }
    return data;
  }
  void do_release(void* data) noexcept override { std::free(data); }

 private:
  std::int64_t allocated() const {
    const std::lock_guard lock(count_mutex);
    return allocated_bytes();
  }

  std::int64_t memory_ = memory_of_host();
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace nsa
