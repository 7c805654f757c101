#pragma once

// Tensors that own their memory, filled with seeded random numbers.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "core/batch.h"
#include "core/bf16.h"
#include "core/philox.h"
#include "core/tensor.h"

namespace nsa::test {

/// A host tensor and its memory. Cheap to copy: copies share the memory.
class Owned {
 public:
  Owned() = default;
  Owned(DType dtype, std::initializer_list<std::int64_t> shape) {
    const std::int64_t bytes = Tensor(nullptr, dtype, shape).bytes();
    memory_ = std::make_shared<std::vector<double>>(static_cast<std::size_t>(bytes / 8 + 1), 0.0);
    tensor_ = Tensor(memory_->data(), dtype, shape);
  }
  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }  // NOLINT: reads as the tensor it owns
  std::int64_t size() const { return tensor_.size(); }

  /// Element i, whatever the type.
  double get(std::int64_t i) const {
    switch (tensor_.dtype()) {
      case DType::kF32:
        return tensor_.as<float>()[i];
      case DType::kF64:
        return tensor_.as<double>()[i];
      case DType::kI32:
        return tensor_.as<std::int32_t>()[i];
      case DType::kBF16:
        return from_bf16(static_cast<const std::uint16_t*>(tensor_.data())[i]);
    }
    return 0;
  }
  void set(std::int64_t i, double value) const {
    switch (tensor_.dtype()) {
      case DType::kF32:
        tensor_.as<float>()[i] = static_cast<float>(value);
        break;
      case DType::kF64:
        tensor_.as<double>()[i] = value;
        break;
      case DType::kI32:
        tensor_.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        break;
      case DType::kBF16:
        static_cast<std::uint16_t*>(tensor_.data())[i] = to_bf16(static_cast<float>(value));
        break;
    }
  }
  void fill(double value) const {
    for (std::int64_t i = 0; i < size(); ++i) set(i, value);
  }
  /// Every element from `values`, which has as many.
  void assign(const std::vector<double>& values) const {
    for (std::int64_t i = 0; i < size(); ++i) set(i, values.at(static_cast<std::size_t>(i)));
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < size(); ++i) all.push_back(get(i));
    return all;
  }

 private:
  std::shared_ptr<std::vector<double>> memory_;
  Tensor tensor_;
};

/// N(0, std^2) by (seed, element): the same numbers in every dtype, up to rounding.
inline Owned random_normal(DType dtype, std::initializer_list<std::int64_t> shape,
                           std::uint64_t seed, double std = 1.0) {
  Owned owned(dtype, shape);
  for (std::int64_t i = 0; i < owned.size(); ++i) {
    owned.set(i, std * philox_normal(seed, 0, static_cast<std::uint64_t>(i)));
  }
  return owned;
}

/// Documents over host bounds that it owns.
class OwnedDocuments {
 public:
  explicit OwnedDocuments(const std::vector<std::int64_t>& lengths) {
    bounds_ = std::make_shared<std::vector<std::int32_t>>(1, 0);
    for (const std::int64_t length : lengths) {
      bounds_->push_back(bounds_->back() + static_cast<std::int32_t>(length));
    }
  }
  operator Documents() const {  // NOLINT: reads as the documents it owns
    return {.bounds = *bounds_,
            .device_bounds =
                Tensor::vector(bounds_->data(), static_cast<std::int64_t>(bounds_->size()))};
  }

 private:
  std::shared_ptr<std::vector<std::int32_t>> bounds_;
};

}  // namespace nsa::test
