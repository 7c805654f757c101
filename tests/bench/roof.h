#pragma once

// What the machine can do at most, measured in the same run with the same threads.

#include <optional>
#include <string>

#include "bench/bench_data.h"
#include "core/parallel.h"
#include "ops/backend.h"

namespace nsa::bench {

/// Matrix products in the type of the data. CPU: m = n = k = 1024, one product a worker, side by
/// side, each on one thread, straight from the BLAS: nothing is lost to cutting one product into
/// tiles. GPU: one product of m = n = k = 8192.
class GemmMeter {
 public:
  /// Multiplies once, to warm up. `backend` must outlive this.
  GemmMeter(Backend& backend, DType dtype);
  /// One round: GFLOP/s.
  double measure();
  std::int64_t extent() const { return a_.dim(0); }

 private:
  void multiply();

  Backend& backend_;
  BenchData data_;
  std::optional<WorkerPool> pool_;  ///< on the CPU
  Tensor a_, b_, c_;
};

/// The best that was measured, as a bound for others.
struct Roof {
  double gemm_gflops = 0;
  std::int64_t gemm_extent = 0;
  double memory_gbs = 0;  ///< bytes read plus bytes written, beyond the caches: the faster of a
                          ///< copy and (CPU) an update in place
};
Roof measure_roof(Backend& backend, DType dtype);

bool is_cpu(const Backend& backend);

/// "sgemm" in fp32; what reports call the products of the meter.
inline const char* gemm_name(DType dtype) {
  return dtype == DType::kF32 ? "sgemm" : "gemm";
}
/// "fp32, 2 threads", or the type and the GPU.
std::string setting(const Backend& backend, DType dtype);

}  // namespace nsa::bench
