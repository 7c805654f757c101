#pragma once

// What a run takes on a GPU besides parameters, optimiser state and activations.

#include <cstdint>

#include "config/config.h"
#include "params/layout.h"
#include "train/schedule.h"

namespace nsa {

/// Bytes on one GPU. kernels/ decides what it takes; here stands what that comes to, so that a plan
/// needs no GPU: tests/kernels/memory_kernel_test.cpp holds the two together.
struct GpuMemory {
  std::int64_t scratch = 0;    ///< of the op that needs most, in the stage that needs most
  std::int64_t workspace = 0;  ///< of the matmul library
  std::int64_t tables = 0;     ///< rotary turns, documents, tokens and targets of batches
  std::int64_t context = 0;    ///< the driver's: context, code of the kernels, stacks
  std::int64_t total() const { return scratch + workspace + tables + context; }
};

/// After with_choices.
GpuMemory plan_gpu_memory(const Config& config, const Layout& layout, const Schedule& schedule);

}  // namespace nsa
