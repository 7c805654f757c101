#pragma once

// Device: where memory lives. One instance a rank; the CPU one is cpu_device.cpp.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// Adds up how long the device works on what is queued between start() and stop(). Pairs do not
/// nest. Neither call waits for the device or allocates memory of it.
class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  virtual ~Stopwatch() = default;

  virtual void start() = 0;
  virtual void stop() noexcept = 0;
  /// Seconds between all starts and stops since the last call; waits for the last stop.
  virtual double take_seconds() = 0;
};

/// How a device is doing. What it does not tell is absent.
struct DeviceHealth {
  std::optional<double> utilisation;    ///< share of the last moments in which it computed, 0 to 1
  std::optional<double> power_w;        ///< drawn now
  std::optional<double> power_limit_w;  ///< at which it lowers its clocks
  std::optional<double> temperature_c;
  std::optional<double> clock_mhz;
  /// Why the clocks are lower than they could be, such as power_cap or thermal; empty: nothing.
  std::vector<std::string> throttle;
};

/// Memory of a device as its driver counts it, in bytes: with what a program's own allocations do
/// not show, such as the driver's, code and other programs.
struct DeviceMemory {
  std::int64_t total = 0;
  std::int64_t free = 0;       ///< now
  std::int64_t peak_used = 0;  ///< the most that was in use when this program looked
};

/// Allocates and moves bytes. Work is queued in order; the CPU device does it at once.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  /// Memory aligned to at least 64 bytes, contents undefined. Throws Error (exit code 1) with the
  /// number of bytes when there is not enough. Never called inside a step.
  void* allocate(std::int64_t bytes);
  void release(void* data, std::int64_t bytes) noexcept;

  virtual void copy_from_host(void* to, const void* host, std::int64_t bytes) = 0;
  /// Blocks until the bytes are there.
  virtual void copy_to_host(void* host, const void* from, std::int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void fill_zero(void* data, std::int64_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Allocates memory of the host that this device's ops and copies take as its own, only slower;
  /// release() through the same object. A CPU's is the CPU itself.
  virtual Device& host_memory() { return *this; }

  /// For profilers (DeviceRange): a name for what is queued until the end_range() that belongs to
  /// it. Ranges nest.
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() noexcept {}
  /// Of the wall clock, unless the device has one of its own. The device must outlive it.
  virtual std::unique_ptr<Stopwatch> make_stopwatch();
  /// None where the device or its driver has nothing to tell.
  virtual std::optional<DeviceHealth> health() { return std::nullopt; }
  /// None where memory is not the device's own.
  virtual std::optional<DeviceMemory> memory() { return std::nullopt; }

  /// What the error of an allocation that does not fit tells to do.
  void set_memory_advice(std::string advice) { memory_advice_ = std::move(advice); }

  /// How many allocations were ever made: constant inside a step.
  std::int64_t allocations() const { return allocations_; }
  std::int64_t allocated_bytes() const { return allocated_bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 protected:
  virtual void* do_allocate(std::int64_t bytes) = 0;
  virtual void do_release(void* data) noexcept = 0;
  const std::string& memory_advice() const { return memory_advice_; }

 private:
  std::string memory_advice_ =
      "lower train.micro_batch or train.seq_len, or set memory.recompute: full (--plan shows what "
      "is needed)";
  std::int64_t allocations_ = 0;
  std::int64_t allocated_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// Names what is queued while it lives. Without a profiler it costs next to nothing.
class DeviceRange {
 public:
  DeviceRange(Device& device, const char* name) : device_(device) { device_.begin_range(name); }
  ~DeviceRange() { device_.end_range(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device& device_;
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace nsa
