#include "ops/cpu/cpu_ops.h"

#include <algorithm>

#include "ops/backend.h"
#include "ops/cpu/gemm.h"

namespace nsa {
namespace cpu {

CpuOps::CpuOps(Device& device, int threads)
    : pool_(threads, {.before = [this] { before_loop(); }, .after = [this] { after_loop(); }}) {
  use_one_blas_thread();
  for (int worker = 0; worker < threads; ++worker) scratch_.emplace_back(device);
}

void CpuOps::before_loop() {
  for (Scratch& scratch : scratch_) scratch.begin_loop();
}

void CpuOps::after_loop() {
  std::int64_t need = 0;
  for (const Scratch& scratch : scratch_) need = std::max(need, scratch.loop_need());
  for (Scratch& scratch : scratch_) scratch.provide(need);
}

}  // namespace cpu

Backend make_cpu_backend(int threads) {
  Backend backend{.device = make_cpu_device(), .ops = nullptr};
  backend.ops = std::make_unique<cpu::CpuOps>(*backend.device, threads);
  return backend;
}

}  // namespace nsa
