#include "bench/bench_data.h"

#include <algorithm>

#include "core/bf16.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace nsa::bench {
namespace {

constexpr std::uint64_t kSeed = 20250102;

}  // namespace

Tensor BenchData::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  const std::int64_t bytes = Tensor(nullptr, dtype, shape).bytes();
  buffers_.emplace_back(device_, bytes);
  return buffers_.back().view(dtype, shape);
}

Tensor BenchData::normal(std::initializer_list<std::int64_t> shape, double std) {
  return random(dtype_, shape, std);
}

Tensor BenchData::normal_fp32(std::initializer_list<std::int64_t> shape, double std) {
  return random(DType::kF32, shape, std);
}

Tensor BenchData::random(DType dtype, std::initializer_list<std::int64_t> shape, double std) {
  constexpr std::int64_t kPiece = 1 << 20;
  const Tensor tensor = take(dtype, shape);
  const std::uint64_t stream = ++streams_;
  const std::int64_t size = tensor.size();
  const auto fill = [&](auto* values, const auto& convert) {
    WorkerPool pool(WorkerPool::default_threads());
    pool.for_each((size + kPiece - 1) / kPiece, [&](std::int64_t piece, int /*worker*/) {
      for (std::int64_t i = piece * kPiece; i < std::min(size, (piece + 1) * kPiece); ++i) {
        const double value = std * philox_normal(kSeed, stream, static_cast<std::uint64_t>(i));
        values[i] = convert(static_cast<float>(value));
      }
    });
    device_.copy_from_host(tensor.data(), values, tensor.bytes());
  };
  if (dtype == DType::kBF16) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(size));
    fill(values.data(), to_bf16);
  } else {
    check(dtype == DType::kF32, "BenchData: fp32 and bf16 alone");
    std::vector<float> values(static_cast<std::size_t>(size));
    fill(values.data(), [](float value) { return value; });
  }
  return tensor;
}

Tensor BenchData::zeros(std::initializer_list<std::int64_t> shape, DType dtype) {
  const Tensor tensor = take(dtype, shape);
  device_.fill_zero(tensor.data(), tensor.bytes());
  return tensor;
}

Tensor BenchData::ids(std::int64_t rows, std::int64_t below) {
  const Tensor tensor = take(DType::kI32, {rows});
  const std::uint64_t stream = ++streams_;
  std::vector<std::int32_t> values(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<std::int32_t>(philox(kSeed, stream, i)[0] % static_cast<std::uint64_t>(below));
  }
  device_.copy_from_host(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

Documents BenchData::document(std::int64_t tokens) {
  bounds_.push_back({0, static_cast<std::int32_t>(tokens)});
  const Tensor on_device = take(DType::kI32, {2});
  device_.copy_from_host(on_device.data(), bounds_.back().data(), on_device.bytes());
  return {.bounds = bounds_.back(), .device_bounds = on_device};
}

}  // namespace nsa::bench
