#pragma once

// What the machine can do at most, measured in the same run with the same threads.

#include <optional>

#include "bench/bench_data.h"
#include "core/parallel.h"
#include "ops/backend.h"

namespace nsa::bench {

/// Single precision matrix products of m = n = k = 1024. CPU: one product a worker, side by side,
/// each on one thread, straight from the BLAS: nothing is lost to cutting one product into tiles.
class SgemmMeter {
 public:
  /// Multiplies once, to warm up. `backend` must outlive this.
  explicit SgemmMeter(Backend& backend);
  /// One round: GFLOP/s.
  double measure();

 private:
  void multiply();

  Backend& backend_;
  BenchData data_;
  std::optional<WorkerPool> pool_;  ///< on the CPU
  Tensor a_, b_, c_;
};

/// The best that was measured, as a bound for others.
struct Roof {
  double sgemm_gflops = 0;
  double memory_gbs = 0;  ///< bytes read plus bytes written, beyond the caches: the faster of a
                          ///< copy and (CPU) an update in place
};
Roof measure_roof(Backend& backend);

}  // namespace nsa::bench
