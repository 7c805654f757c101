#pragma once

// --plan: what a run will take, told before it starts.

#include <cstdint>
#include <string>

#include "config/config.h"
#include "train/gpu_memory.h"
#include "train/schedule.h"

namespace nsa {

/// Memory of a run by class, in bytes. Exact for what lives as long as the run. On a CPU the
/// scratch of ops (a few MiB a thread) and the tokens of a batch come on top; on a GPU they are in
/// `gpu`.
struct MemoryPlan {
  std::int64_t weights = 0;
  std::int64_t master = 0;  ///< 0 where the weights are their own masters
  std::int64_t gradients = 0;
  std::int64_t m = 0;
  std::int64_t v = 0;
  std::int64_t offloaded = 0;    ///< of master, m and v: in host memory, not on the GPU
  std::int64_t activations = 0;  ///< of the stage that needs most
  std::int64_t logits = 0;       ///< the chunk of logits inside the activations
  GpuMemory gpu{};               ///< 0 on a CPU
  /// What the run allocates for sure, and all of it.
  std::int64_t certain() const {
    return weights + master + gradients + m + v + activations - offloaded;
  }
  std::int64_t total() const { return certain() + gpu.total(); }
};

/// Throws Error as plan_report does.
MemoryPlan plan_memory(const Config& config);
/// The same for a configuration with its choices made (with_choices) and its schedule.
MemoryPlan plan_memory(const Config& chosen, const Schedule& schedule);

/// The plan as text: parameters; a line a stage with steps, learning rates, keys a query reads,
/// FLOPs and memory; memory by class; disk. Reads no data, allocates none of what it counts. Throws
/// Error (code 2) where the length of the run depends on the data (train.epochs), and for what does
/// not divide.
std::string plan_report(const Config& config);

}  // namespace nsa
