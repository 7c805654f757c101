#pragma once

// Where a run executes: a device and the ops on it.

#include <memory>
#include <string>

#include "core/device.h"
#include "core/kernel_choice.h"
#include "ops/ops.h"

namespace nsa {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

/// "cpu" or "cuda:N". `threads` sizes the CPU pool (0: WorkerPool::default_threads()).
/// Throws Error (exit code 2) when the device is not there or not built in.
Backend make_backend(const std::string& device, int threads = 0,
                     KernelChoice kernels = KernelChoice::kAuto);

/// Whether this program was built with CUDA and finds a usable GPU and driver.
bool cuda_available();

// For make_backend: each is defined once, by the backend or by its no_*.cpp twin.
Backend make_cpu_backend(int threads);
Backend make_cuda_backend(int index, KernelChoice kernels);

}  // namespace nsa
