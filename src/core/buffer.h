#pragma once

// Buffer: owns one allocation of a Device.

#include <cstdint>
#include <utility>

#include "core/device.h"
#include "core/tensor.h"

namespace nsa {

/// Move-only. The device must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::int64_t bytes)
      : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (device_ != nullptr) device_->release(data_, bytes_);
  }

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// A view of the first elements.
  Tensor view(DType dtype, std::initializer_list<std::int64_t> shape) const {
    const Tensor tensor(data_, dtype, shape);
    check(tensor.bytes() <= bytes_, "Buffer: view larger than the allocation");
    return tensor;
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace nsa
