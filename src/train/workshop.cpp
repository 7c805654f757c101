#include "train/workshop.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "config/device.h"
#include "core/error.h"
#include "train/host_memory.h"
#include "train/own_batch.h"
#include "train/plan.h"

namespace nsa {
namespace {

/// Before anything is allocated: the kernel lends more memory than there is, and ends the process
/// when it is used.
void refuse_too_large(const Config& configured, const Schedule& schedule) {
  const Config config = with_choices(configured);
  state_storage(config);
  const MemoryPlan plan = plan_memory(config, schedule);
  if (runs_on_gpu(config)) {
    check_offload(plan, host_memory_bytes());
  } else {
    check_memory(plan, config, host_memory_bytes());
  }
}

/// With train.steps or train.tokens the schedule needs no data, so that what is wrong with it is
/// told before anything that is wrong with the data.
Workshop::Plan plan_run(const Config& config) {
  if (config.train.epochs) {
    RunData data = open_data(config);
    const std::int64_t epoch = epoch_tokens(data.train.tokens(), largest_seq_len(config));
    Schedule schedule(config, epoch);
    refuse_too_large(config, schedule);
    return {.data = std::move(data), .schedule = std::move(schedule)};
  }
  Schedule schedule(config, 0);
  refuse_too_large(config, schedule);
  return {.data = open_data(config), .schedule = std::move(schedule)};
}

/// The same on a GPU, whose backend tells what it has. Gives the backend its advice for later.
Backend fitting(Backend backend, const Config& chosen, const MemoryPlan& plan) {
  if (const std::optional<DeviceMemory> gpu = backend.device->memory()) {
    backend.device->set_memory_advice(out_of_memory_advice(plan, chosen));
    check_gpu_memory(plan, chosen, *gpu);
  }
  return backend;
}

}  // namespace

Config with_choices(Config config) {
  if (config.run.device == "auto") config.run.device = cuda_available() ? "cuda" : "cpu";
  if (config.precision.compute == "auto") {
    config.precision.compute = config.run.device == "cpu" ? "fp32" : "bf16";
  }
  for (StageConfig& stage : config.schedule.stages) {
    stage.micro_batch = micro_batch_of(stage, runs_on_gpu(config));
  }
  config.train.micro_batch = config.schedule.stages.front().micro_batch;
  return config;
}

DType compute_dtype(const Config& config) {
  const bool on_cpu = config.run.device == "cpu";
  if (config.precision.compute == "fp32") return DType::kF32;
  if (config.precision.compute == "fp64" && on_cpu) return DType::kF64;
  if (config.precision.compute == "bf16" && !on_cpu) return DType::kBF16;
  fail_config("precision.compute is '" + config.precision.compute + "'; on " + config.run.device +
              " it must be auto, fp32 or " + (on_cpu ? "fp64" : "bf16"));
}

StateStorage state_storage(const Config& config) {
  const bool bf16 = config.precision.optim_states == "bf16";
  const bool offload = config.memory.offload == "optimizer";
  if (bf16 && compute_dtype(config) == DType::kF64) {
    fail_config(
        "precision.optim_states is bf16, but precision.compute is fp64, which rounds nothing; set "
        "precision.optim_states: fp32, or precision.compute: fp32");
  }
  if (offload && !runs_on_gpu(config)) {
    fail_config("memory.offload is optimizer, but on " + config.run.device +
                " the optimiser's state is in host memory already; set memory.offload: none");
  }
  return {.bf16_moments = bf16, .on_host = offload};
}

std::vector<MicroShape> shapes_of(const Schedule& schedule) {
  std::vector<MicroShape> shapes;
  for (const StageSpan& stage : schedule.stages()) {
    shapes.push_back({.rows = stage.micro_batch * stage.config.seq_len,
                      .longest = stage.config.seq_len,
                      .geometry = stage.geometry});
  }
  return shapes;
}

std::int64_t largest_seq_len(const Config& config) {
  std::int64_t most = 0;
  for (const StageConfig& stage : config.schedule.stages) most = std::max(most, stage.seq_len);
  return most;
}

std::int64_t epoch_tokens(std::int64_t tokens, std::int64_t page) {
  return tokens < 1 ? 0 : (tokens - 1) / page * page;
}

Workshop::Workshop(const Config& configured)
    : Workshop(with_choices(configured), plan_run(configured)) {}

Workshop::Workshop(const Config& chosen, Plan plan)
    : config(chosen),
      planned(plan_memory(config, plan.schedule)),
      backend(fitting(make_backend(config.run.device, 0, config.run.kernels), config, planned)),
      data(std::move(plan.data)),
      schedule(std::move(plan.schedule)),
      store(Layout(config), backend, compute_dtype(config), state_storage(config)),
      model(config, store, backend, shapes_of(schedule)) {
  store.initialize(config.run.seed);
}

std::int64_t Workshop::largest_rows() const {
  std::int64_t most = 0;
  for (const MicroShape& shape : shapes_of(schedule)) most = std::max(most, shape.rows);
  return most;
}

void Workshop::rehearse() {
  OwnBatch own(*backend.device, largest_rows());
  for (const MicroShape& shape : shapes_of(schedule)) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.rows));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % config.model.vocab_size);
    }
    model.train_micro(own.make(tokens, shape.longest), shape.geometry, 1.0);
    // Packed documents can be as short as one token, and then there are most of them.
    if (config.data.doc_mask) model.train_micro(own.make(tokens, 1), shape.geometry, 1.0);
  }
  model.take_loss_sums();
  store.zero_gradients();
}

}  // namespace nsa
