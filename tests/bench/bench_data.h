#pragma once

// Tensors on the device that a benchmark owns.

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

#include "core/batch.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"

namespace nsa::bench {

/// Every tensor lives as long as this. `device` must outlive it.
class BenchData {
 public:
  /// Weights and activations have `dtype`.
  explicit BenchData(Device& device, DType dtype = DType::kF32) : device_(device), dtype_(dtype) {}

  DType dtype() const { return dtype_; }

  /// N(0, std^2), other numbers at each call. Zeros would be wrong: a processor multiplies them
  /// faster, and equal scores choose other blocks.
  Tensor normal(std::initializer_list<std::int64_t> shape, double std = 1.0);
  /// Of fp32 whatever the type of the data: moments, gradients of weights.
  Tensor normal_fp32(std::initializer_list<std::int64_t> shape, double std = 1.0);
  /// Contents of an output, all zero.
  Tensor zeros(std::initializer_list<std::int64_t> shape) { return zeros(shape, dtype_); }
  Tensor zeros(std::initializer_list<std::int64_t> shape, DType dtype);
  Tensor statistics(std::initializer_list<std::int64_t> shape) {
    return zeros(shape, stat_dtype(dtype_));
  }
  /// Of weights, to be added to.
  Tensor gradients(std::initializer_list<std::int64_t> shape) {
    return zeros(shape, grad_dtype(dtype_));
  }
  /// Whole numbers in [0, below).
  Tensor ids(std::int64_t rows, std::int64_t below);
  /// One document of so many tokens.
  Documents document(std::int64_t tokens);

 private:
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);
  Tensor random(DType dtype, std::initializer_list<std::int64_t> shape, double std);

  Device& device_;
  DType dtype_;
  std::uint64_t streams_ = 0;
  std::deque<Buffer> buffers_;
  std::deque<std::vector<std::int32_t>> bounds_;
};

}  // namespace nsa::bench
