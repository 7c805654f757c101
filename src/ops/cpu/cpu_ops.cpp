#include "ops/cpu/cpu_ops.h"

#include "ops/backend.h"
#include "ops/cpu/gemm.h"

namespace nsa {
namespace cpu {

CpuOps::CpuOps(Device& device, int threads) : pool_(threads) {
  use_one_blas_thread();
  for (int worker = 0; worker < threads; ++worker) scratch_.emplace_back(device);
}

}  // namespace cpu

Backend make_cpu_backend(int threads) {
  Backend backend{.device = make_cpu_device(), .ops = nullptr};
  backend.ops = std::make_unique<cpu::CpuOps>(*backend.device, threads);
  return backend;
}

}  // namespace nsa
