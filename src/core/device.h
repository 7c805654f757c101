#pragma once

// Device: where memory lives. One instance a rank; the CPU one is cpu_device.cpp.

#include <cstdint>
#include <memory>
#include <string>

namespace nsa {

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

  /// How many allocations were ever made: constant inside a step.
  std::int64_t allocations() const { return allocations_; }
  std::int64_t allocated_bytes() const { return allocated_bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 protected:
  virtual void* do_allocate(std::int64_t bytes) = 0;
  virtual void do_release(void* data) noexcept = 0;

 private:
  std::int64_t allocations_ = 0;
  std::int64_t allocated_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace nsa
