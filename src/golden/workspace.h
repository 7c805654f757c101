#pragma once

// Tensors of a golden run, on any device.

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <limits>
#include <vector>

#include "core/bf16.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"

namespace nsa {

/// Owns every tensor it hands out, to the end of the run.
class Workspace {
 public:
  Workspace(Device& device, DType dtype) : device_(&device), dtype_(dtype) {}

  DType dtype() const { return dtype_; }
  Tensor upload(std::initializer_list<std::int64_t> shape, const std::vector<double>& values) {
    return upload(dtype_, shape, values);
  }
  Tensor upload(DType dtype, std::initializer_list<std::int64_t> shape,
                const std::vector<double>& values) {
    const Tensor tensor = take(dtype, shape);
    check(static_cast<std::int64_t>(values.size()) == tensor.size(), "upload of another size");
    switch (dtype) {
      case DType::kF32:
        copy_in<float>(tensor, values);
        break;
      case DType::kF64:
        copy_in<double>(tensor, values);
        break;
      case DType::kI32:
        copy_in<std::int32_t>(tensor, values);
        break;
      case DType::kBF16:
        copy_in<std::uint16_t>(tensor, rounded_to_bf16(values));
        break;
    }
    return tensor;
  }
  Tensor zeros(std::initializer_list<std::int64_t> shape) { return zeros(dtype_, shape); }
  /// Of weights, which are added to.
  Tensor gradients(std::initializer_list<std::int64_t> shape) {
    return zeros(grad_dtype(dtype_), shape);
  }
  /// For results: full of NaN, so that what an op leaves unwritten shows.
  Tensor result(std::initializer_list<std::int64_t> shape) { return result(dtype_, shape); }
  Tensor result(DType dtype, std::initializer_list<std::int64_t> shape) {
    const std::int64_t size = Tensor(nullptr, dtype, shape).size();
    return upload(dtype, shape,
                  std::vector<double>(static_cast<std::size_t>(size),
                                      std::numeric_limits<double>::quiet_NaN()));
  }
  std::vector<double> download(const Tensor& tensor) {
    switch (tensor.dtype()) {
      case DType::kF32:
        return copy_out<float>(tensor);
      case DType::kF64:
        return copy_out<double>(tensor);
      case DType::kI32:
        return copy_out<std::int32_t>(tensor);
      case DType::kBF16:
        return widened(copy_out<std::uint16_t>(tensor));
    }
    return {};
  }

 private:
  /// Each element the bits of a bf16.
  static std::vector<double> rounded_to_bf16(const std::vector<double>& values) {
    std::vector<double> bits;
    bits.reserve(values.size());
    for (const double value : values) bits.push_back(to_bf16(static_cast<float>(value)));
    return bits;
  }
  static std::vector<double> widened(std::vector<double> bits) {
    for (double& value : bits) value = from_bf16(static_cast<std::uint16_t>(value));
    return bits;
  }
  Tensor zeros(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor tensor = take(dtype, shape);
    device_->fill_zero(tensor.data(), tensor.bytes());
    return tensor;
  }
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    // One byte at least: a tensor without elements must still be a defined one.
    const std::int64_t bytes = Tensor(nullptr, dtype, shape).bytes();
    return buffers_.emplace_back(*device_, bytes + 1).view(dtype, shape);
  }
  template <class T>
  void copy_in(const Tensor& tensor, const std::vector<double>& values) {
    std::vector<T> host;
    host.reserve(values.size());
    for (const double value : values) host.push_back(static_cast<T>(value));
    device_->copy_from_host(tensor.data(), host.data(), tensor.bytes());
  }
  template <class T>
  std::vector<double> copy_out(const Tensor& tensor) {
    std::vector<T> host(static_cast<std::size_t>(tensor.size()));
    device_->copy_to_host(host.data(), tensor.data(), tensor.bytes());
    return {host.begin(), host.end()};
  }

  Device* device_;
  DType dtype_;
  std::deque<Buffer> buffers_;
};

}  // namespace nsa
