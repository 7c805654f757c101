#pragma once

// One op on two backends: the CPU in fp32 as the oracle, and the GPU in fp32 or bf16.

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "core/buffer.h"
#include "ops/backend.h"
#include "support/near.h"
#include "support/owned.h"

namespace nsa::test {

/// The type that a tensor of the oracle has on the GPU.
enum class Kind : std::uint8_t {
  kData,  ///< the element type under test: weights and activations, whose host values are rounded
  kStat,  ///< fp32 either way: statistics, gradients of weights, moments
  kInteger,  ///< int32
  kDouble    ///< fp64 either way: sums of losses and squares
};

/// The kernels under test: NSA_TEST_KERNELS=general leaves the fast paths out.
inline KernelChoice kernels_under_test() {
  const char* asked = std::getenv("NSA_TEST_KERNELS");
  return asked != nullptr && std::string(asked) == "general" ? KernelChoice::kGeneral
                                                             : KernelChoice::kAuto;
}

/// Runs a program of ops, written once against `place`, on both backends. `place(name)` gives the
/// tensor where the backend at hand finds it. Skips the test where there is no GPU.
class Parity {
 public:
  explicit Parity(DType dtype)
      : dtype_(dtype),
        cpu_(make_backend("cpu", 2)),
        gpu_(make_backend("cuda", 0, kernels_under_test())) {}

  /// An operand with its initial contents.
  void input(const std::string& name, Owned values, Kind kind = Kind::kData) {
    if (kind == Kind::kData && dtype_ == DType::kBF16) {
      for (std::int64_t i = 0; i < values.size(); ++i) {
        values.set(i, from_bf16(to_bf16(static_cast<float>(values.get(i)))));
      }
    }
    add(name, std::move(values), kind);
  }
  /// A result: NaN (or the least integer) on both sides until it is written.
  void output(const std::string& name, std::initializer_list<std::int64_t> shape,
              Kind kind = Kind::kData) {
    Owned values(host_type(kind), shape);
    values.fill(kind == Kind::kInteger ? std::numeric_limits<std::int32_t>::min()
                                       : std::numeric_limits<double>::quiet_NaN());
    add(name, std::move(values), kind);
  }

  /// `program(ops, place, documents)` is called for the CPU, then for the GPU. `place` maps a name
  /// to its Tensor ("" to an undefined one).
  template <class Program>
  void run(const std::vector<std::int64_t>& lengths, Program&& program) {
    const OwnedDocuments documents(lengths);
    program(
        *cpu_.ops, [this](const std::string& name) { return find(name, false); },
        static_cast<Documents>(documents));
    Documents on_gpu = documents;
    Buffer bounds(*gpu_.device, on_gpu.device_bounds.bytes());
    gpu_.device->copy_from_host(bounds.data(), on_gpu.device_bounds.data(),
                                on_gpu.device_bounds.bytes());
    on_gpu.device_bounds = bounds.view(DType::kI32, {on_gpu.device_bounds.dim(0)});
    program(
        *gpu_.ops, [this](const std::string& name) { return find(name, true); }, on_gpu);
    gpu_.device->synchronize();
  }

  /// The largest error of the GPU's result is at most `tolerance` of the largest magnitude.
  ::testing::AssertionResult near(const std::string& name, double tolerance) {
    return test::near(fetch(name), entries_.at(name).host, tolerance) << " in " << name;
  }
  ::testing::AssertionResult same(const std::string& name) {
    return test::same(fetch(name), entries_.at(name).host) << " in " << name;
  }
  /// The oracle's tensor, and the GPU's brought back in fp32.
  const Owned& expected(const std::string& name) const { return entries_.at(name).host; }
  Owned fetch(const std::string& name) {
    const Entry& entry = entries_.at(name);
    const Tensor& on_gpu = entry.device;
    std::vector<char> bytes(static_cast<std::size_t>(on_gpu.bytes()));
    gpu_.device->copy_to_host(bytes.data(), on_gpu.data(), on_gpu.bytes());
    Owned raw(on_gpu.dtype(), {on_gpu.size()});
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(raw.tensor().data()));
    return raw;
  }
  /// Copies the oracle's result to the GPU's, so that the ops after it start from the same.
  void align(const std::string& name) { upload(entries_.at(name)); }

  DType dtype() const { return dtype_; }
  Backend& gpu() { return gpu_; }

 private:
  struct Entry {
    Owned host;
    Kind kind = Kind::kData;
    Tensor device;
  };

  static DType host_type(Kind kind) {
    return kind == Kind::kInteger ? DType::kI32 : kind == Kind::kDouble ? DType::kF64 : DType::kF32;
  }
  DType device_type(Kind kind) const { return kind == Kind::kData ? dtype_ : host_type(kind); }

  void add(const std::string& name, Owned values, Kind kind) {
    const Tensor& host = values.tensor();
    const DType type = device_type(kind);
    Buffer& buffer = buffers_.emplace_back(*gpu_.device, host.size() * size_of(type) + 16);
    Tensor device = buffer.view(type, {host.size()});
    switch (host.rank()) {
      case 2:
        device = device.reshape({host.dim(0), host.dim(1)});
        break;
      case 3:
        device = device.reshape({host.dim(0), host.dim(1), host.dim(2)});
        break;
      default:
        break;
    }
    Entry& entry = entries_[name];
    entry = {.host = std::move(values), .kind = kind, .device = device};
    upload(entry);
  }
  void upload(const Entry& entry) {
    Owned converted(entry.device.dtype(), {entry.host.size()});
    for (std::int64_t i = 0; i < converted.size(); ++i) converted.set(i, entry.host.get(i));
    gpu_.device->copy_from_host(entry.device.data(), converted.tensor().data(),
                                entry.device.bytes());
  }
  Tensor find(const std::string& name, bool on_gpu) const {
    if (name.empty()) return {};
    const Entry& entry = entries_.at(name);
    return on_gpu ? entry.device : entry.host.tensor();
  }

  DType dtype_;
  Backend cpu_;
  Backend gpu_;
  std::map<std::string, Entry> entries_;
  std::deque<Buffer> buffers_;
};

/// Tests of the kernels take the element type as their parameter.
class KernelTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << "no GPU here";
  }
};

/// What a result computed in the type under test may be off by, per unit of magnitude.
inline double tolerance(DType dtype, double fp32 = 1e-5, double bf16 = 1.5e-2) {
  return dtype == DType::kBF16 ? bf16 : fp32;
}

inline std::string type_name(const ::testing::TestParamInfo<DType>& info) {
  return name_of(info.param);
}

}  // namespace nsa::test
