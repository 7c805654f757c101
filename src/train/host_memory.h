#pragma once

// Whether a run fits into the memory of this machine or of its GPU, told before it is allocated.

#include <cstdint>
#include <filesystem>
#include <string>

#include "config/config.h"
#include "core/device.h"
#include "train/plan.h"

namespace nsa {

/// Bytes that a process may have: the machine's memory, or less where the process's address space
/// (ulimit -v) or its control group is limited. Swap does not count.
std::int64_t host_memory_bytes();

/// The smallest limit, in bytes, on the way from a control group up to `root`, which holds one
/// folder a group: memory.max (version 2) or memory.limit_in_bytes (version 1). The largest int64
/// where there is none.
std::int64_t control_group_limit(const std::filesystem::path& root,
                                 const std::filesystem::path& group);

/// Throws Error (code 2) with both sizes and the settings to change first when the plan needs more
/// than `available` bytes. `config` is what the plan was made of.
void check_memory(const MemoryPlan& plan, const Config& config, std::int64_t available);

/// Throws Error (code 2) where the host has not `available` bytes for what the plan offloads.
void check_offload(const MemoryPlan& plan, std::int64_t available);

/// What to change first where a run does not fit: what takes most.
std::string memory_advice(const MemoryPlan& plan, const Config& config);
/// The plan by class and memory_advice(): what an allocation that fails on the way tells.
std::string out_of_memory_advice(const MemoryPlan& plan, const Config& config);

/// Throws Error (code 1) with both sizes and the settings to change first when what the run
/// allocates for sure is more than what is free on the GPU; warns where the whole plan is.
void check_gpu_memory(const MemoryPlan& plan, const Config& config, const DeviceMemory& gpu);

}  // namespace nsa
