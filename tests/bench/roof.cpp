#include "bench/roof.h"

#include <algorithm>
#include <cmath>

#include "bench/timing.h"
#include "core/buffer.h"
#include "ops/cpu/gemm.h"

namespace nsa::bench {
namespace {

constexpr std::int64_t kExtent = 1024;
constexpr std::int64_t kExtentOnGpu = 8192;
constexpr int kRounds = 7;

/// The shortest of some rounds after one that warms up, in ms.
template <class Body>
double shortest(Device& device, const Body& body) {
  body();
  double best = milliseconds(device, body);
  for (int round = 1; round < kRounds; ++round) best = std::min(best, milliseconds(device, body));
  return best;
}

double measure_memory_gbs(Backend& backend) {
  // Far more than the caches hold, of either machine.
  const std::int64_t bytes = std::int64_t{is_cpu(backend) ? 128 : 2048} << 20;
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  Device& device = *backend.device;
  const Buffer from(device, bytes);
  const Buffer to(device, bytes);
  device.fill_zero(from.data(), bytes);
  device.fill_zero(to.data(), bytes);
  WorkerPool pool(is_cpu(backend) ? WorkerPool::default_threads() : 1);
  const std::int64_t piece = is_cpu(backend) ? kPiece : bytes;
  double best = shortest(device, [&] {
    pool.for_each(bytes / piece, [&](std::int64_t index, int /*worker*/) {
      device.copy(static_cast<char*>(to.data()) + index * piece,
                  static_cast<const char*>(from.data()) + index * piece, piece);
    });
  });
  if (is_cpu(backend)) {
    // A copy also reads what it overwrites; an update in place shows what memory really gives.
    best = std::min(best, shortest(device, [&] {
                      pool.for_each(bytes / piece, [&](std::int64_t index, int /*worker*/) {
                        constexpr std::int64_t kFloats = kPiece / 4;
                        float* x = static_cast<float*>(to.data()) + index * kFloats;
                        for (std::int64_t i = 0; i < kFloats; ++i) x[i] = 0.5F * x[i] + 1.0F;
                      });
                    }));
  }
  return 2.0 * static_cast<double>(bytes) / best / 1e6;
}

}  // namespace

bool is_cpu(const Backend& backend) {
  return backend.device->name() == "cpu";
}

std::string setting(const Backend& backend, DType dtype) {
  const std::string where = is_cpu(backend)
                                ? std::to_string(WorkerPool::default_threads()) + " threads"
                                : backend.device->name();
  return std::string(name_of(dtype)) + ", " + where;
}

GemmMeter::GemmMeter(Backend& backend, DType dtype)
    : backend_(backend), data_(*backend.device, dtype) {
  if (is_cpu(backend)) pool_.emplace(WorkerPool::default_threads());
  const std::int64_t extent = pool_ ? kExtent : kExtentOnGpu;
  a_ = data_.normal({extent, extent});
  b_ = data_.normal({extent, extent});
  c_ = data_.zeros({pool_ ? pool_->size() : 1, extent, extent});
  multiply();
}

void GemmMeter::multiply() {
  if (!pool_) {
    backend_.ops->run(
        MatmulForward{.out = c_.reshape({extent(), extent()}), .x = a_, .weight = b_});
    return;
  }
  pool_->for_each(pool_->size(), [&](std::int64_t index, int /*worker*/) {
    cpu::gemm(cpu::Gemm<float>{.m = kExtent,
                               .n = kExtent,
                               .k = kExtent,
                               .a = a_.as<float>(),
                               .lda = kExtent,
                               .b = b_.as<float>(),
                               .ldb = kExtent,
                               .c = c_.as<float>() + index * kExtent * kExtent,
                               .ldc = kExtent});
  });
}

double GemmMeter::measure() {
  const double flops = 2.0 * std::pow(static_cast<double>(extent()), 3);
  const double ms = milliseconds(*backend_.device, [&] { multiply(); });
  return flops * static_cast<double>(c_.dim(0)) / ms / 1e6;
}

Roof measure_roof(Backend& backend, DType dtype) {
  GemmMeter gemm(backend, dtype);
  Roof roof{.gemm_extent = gemm.extent(), .memory_gbs = measure_memory_gbs(backend)};
  for (int round = 0; round < kRounds; ++round) {
    roof.gemm_gflops = std::max(roof.gemm_gflops, gemm.measure());
  }
  return roof;
}

}  // namespace nsa::bench
