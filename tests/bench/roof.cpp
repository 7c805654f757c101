#include "bench/roof.h"

#include <algorithm>

#include "bench/timing.h"
#include "core/buffer.h"
#include "ops/cpu/gemm.h"

namespace nsa::bench {
namespace {

constexpr std::int64_t kExtent = 1024;
constexpr int kRounds = 7;

bool is_cpu(const Backend& backend) {
  return backend.device->name() == "cpu";
}

/// The shortest of some rounds after one that warms up, in ms.
template <class Body>
double shortest(Device& device, const Body& body) {
  body();
  double best = milliseconds(device, body);
  for (int round = 1; round < kRounds; ++round) best = std::min(best, milliseconds(device, body));
  return best;
}

double measure_memory_gbs(Backend& backend) {
  constexpr std::int64_t kBytes = std::int64_t{128} << 20;
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  Device& device = *backend.device;
  const Buffer from(device, kBytes);
  const Buffer to(device, kBytes);
  device.fill_zero(from.data(), kBytes);
  device.fill_zero(to.data(), kBytes);
  WorkerPool pool(is_cpu(backend) ? WorkerPool::default_threads() : 1);
  const std::int64_t piece = is_cpu(backend) ? kPiece : kBytes;
  double best = shortest(device, [&] {
    pool.for_each(kBytes / piece, [&](std::int64_t index, int /*worker*/) {
      device.copy(static_cast<char*>(to.data()) + index * piece,
                  static_cast<const char*>(from.data()) + index * piece, piece);
    });
  });
  if (is_cpu(backend)) {
    // A copy also reads what it overwrites; an update in place shows what memory really gives.
    best = std::min(best, shortest(device, [&] {
                      pool.for_each(kBytes / piece, [&](std::int64_t index, int /*worker*/) {
                        constexpr std::int64_t kFloats = kPiece / 4;
                        float* x = static_cast<float*>(to.data()) + index * kFloats;
                        for (std::int64_t i = 0; i < kFloats; ++i) x[i] = 0.5F * x[i] + 1.0F;
                      });
                    }));
  }
  return 2.0 * static_cast<double>(kBytes) / best / 1e6;
}

}  // namespace

SgemmMeter::SgemmMeter(Backend& backend)
    : backend_(backend),
      data_(*backend.device),
      a_(data_.normal({kExtent, kExtent})),
      b_(data_.normal({kExtent, kExtent})) {
  if (is_cpu(backend)) pool_.emplace(WorkerPool::default_threads());
  c_ = data_.zeros({pool_ ? pool_->size() : 1, kExtent, kExtent});
  multiply();
}

void SgemmMeter::multiply() {
  if (!pool_) {
    backend_.ops->run(MatmulForward{.out = c_.reshape({kExtent, kExtent}), .x = a_, .weight = b_});
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

double SgemmMeter::measure() {
  constexpr double kFlops = 2.0 * kExtent * kExtent * kExtent;
  const double ms = milliseconds(*backend_.device, [&] { multiply(); });
  return kFlops * static_cast<double>(c_.dim(0)) / ms / 1e6;
}

Roof measure_roof(Backend& backend) {
  SgemmMeter sgemm(backend);
  Roof roof{.memory_gbs = measure_memory_gbs(backend)};
  for (int round = 0; round < kRounds; ++round) {
    roof.sgemm_gflops = std::max(roof.sgemm_gflops, sgemm.measure());
  }
  return roof;
}

}  // namespace nsa::bench
