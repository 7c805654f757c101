#include "train/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "config/device.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "train/start_report.h"

namespace nsa {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The number that a file of the kernel holds; "max", and whatever is no number, is no limit.
std::int64_t limit_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  std::int64_t bytes = 0;
  if (!(file >> word)) return kNoLimit;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, bytes);
  return error == std::errc{} && stop == end && bytes > 0 ? bytes : kNoLimit;
}

/// The least limit over the control groups that this process is in.
std::int64_t own_control_groups() {
  const fs::path root = "/sys/fs/cgroup";
  std::int64_t least =
      std::min(control_group_limit(root, ""), control_group_limit(root / "memory", ""));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", or "7:memory:/path"
    const std::size_t path = line.find(":/");
    if (path == std::string::npos) continue;
    const std::string group = line.substr(path + 2);
    const bool version_one = line.find(":memory:") != std::string::npos;
    if (version_one || line.rfind("0::", 0) == 0) {
      least = std::min(least, control_group_limit(version_one ? root / "memory" : root, group));
    }
  }
  return least;
}

}  // namespace

std::int64_t control_group_limit(const fs::path& root, const fs::path& group) {
  std::int64_t least = kNoLimit;
  for (fs::path at = group;; at = at.parent_path()) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      least = std::min(least, limit_in(root / at / name));
    }
    if (at.empty() || !at.has_relative_path()) return least;
  }
}

std::int64_t host_memory_bytes() {
  std::int64_t bytes = std::min(kNoLimit, own_control_groups());
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) bytes = std::min(bytes, pages * page);
  struct rlimit space = {};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < static_cast<rlim_t>(kNoLimit)) {
    bytes = std::min(bytes, static_cast<std::int64_t>(space.rlim_cur));
  }
  return bytes;
}

std::string memory_advice(const MemoryPlan& plan, const Config& config) {
  const std::int64_t lasting = plan.certain() - plan.activations;
  if (lasting >= plan.activations) {
    const bool offloads = runs_on_gpu(config) && config.memory.offload == "none";
    return std::string(offloads ? "set memory.offload: optimizer, or " : "") +
           fmt::format("lower model.layers ({}), model.hidden ({}) or model.vocab_size ({})",
                       config.model.layers, config.model.hidden, config.model.vocab_size);
  }
  if (2 * plan.logits > plan.activations) {
    return "raise memory.logits_chunks, or lower train.micro_batch or model.vocab_size";
  }
  return std::string(
             config.memory.recompute == Recompute::kFull ? "" : "set memory.recompute: full, or ") +
         "lower train.micro_batch or train.seq_len (of every stage)";
}

void check_memory(const MemoryPlan& plan, const Config& config, std::int64_t available) {
  if (plan.total() <= available) return;
  fail_config(fmt::format(
      "the run needs {} of memory (weights, gradients and moments {}, activations {}) and this "
      "machine has {}; {}, and see --plan",
      size_text(plan.total()), size_text(plan.certain() - plan.activations),
      size_text(plan.activations), size_text(available), memory_advice(plan, config)));
}

void check_offload(const MemoryPlan& plan, std::int64_t available) {
  if (plan.offloaded <= available) return;
  fail_config(fmt::format(
      "memory.offload is optimizer: master weights and moments need {} of host memory, and this "
      "machine has {}; set memory.offload: none, or precision.optim_states: bf16",
      size_text(plan.offloaded), size_text(available)));
}

std::string out_of_memory_advice(const MemoryPlan& plan, const Config& config) {
  return fmt::format(
      "the plan was {} (weights, gradients and moments {}, activations {}, scratch of ops {}, the "
      "rest {}); {}, and see --plan",
      size_text(plan.total()), size_text(plan.certain() - plan.activations),
      size_text(plan.activations), size_text(plan.gpu.scratch),
      size_text(plan.gpu.total() - plan.gpu.scratch), memory_advice(plan, config));
}

void check_gpu_memory(const MemoryPlan& plan, const Config& config, const DeviceMemory& gpu) {
  // The context is there already, and so are buffers of the backend.
  const std::int64_t more = plan.total() - plan.gpu.context - plan.gpu.workspace;
  if (more <= gpu.free) return;
  const std::string sizes =
      fmt::format("{} of {} of the GPU's memory are free; {}", size_text(gpu.free),
                  size_text(gpu.total), out_of_memory_advice(plan, config));
  if (plan.certain() <= gpu.free) {
    log::warn("the run may not fit: " + sizes);
    return;
  }
  fail_runtime("the run does not fit: " + sizes);
}

}  // namespace nsa
