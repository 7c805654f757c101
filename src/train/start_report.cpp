#include "train/start_report.h"

#include <algorithm>

#include "core/format.h"
#include "core/parallel.h"
#include "train/checkpoint.h"
#include "train/durable.h"
#include "train/flops.h"
#include "train/version.h"

namespace nsa {
namespace {

std::string device_line(const Workshop& shop) {
  return fmt::format("device    {}, {} threads, {}", shop.backend.device->name(),
                     WorkerPool::default_threads(), name_of(shop.store.dtype()));
}

std::string model_line(const Workshop& shop) {
  const Layout& layout = shop.store.layout();
  const ModelConfig& model = shop.config.model;
  return fmt::format(
      "model     {} parameters, {} without embeddings; {} layers x {}, {} heads, {} "
      "kv heads, {} attention",
      grouped(layout.parameter_count()), grouped(layout.non_embedding_count()), model.layers,
      model.hidden, model.heads, model.kv_heads,
      shop.config.attention.kind == AttentionKind::kNsa ? "nsa" : "dense");
}

std::vector<std::string> data_lines(const Workshop& shop) {
  const TokenDataset& train = shop.data.train;
  const std::int64_t page = shop.schedule.page();
  const std::int64_t served = epoch_tokens(train.tokens(), page);
  std::vector<std::string> lines = {fmt::format(
      "train     {} tokens in {} shard(s); an epoch is {} pages of {}, {} tokens at the end are "
      "dropped",
      grouped(train.tokens()), train.shards(), grouped(served / page), page,
      train.tokens() - served)};
  if (shop.data.val) {
    lines.push_back(fmt::format(
        "val       {} tokens; unigram entropy of the validation tokens: {:.4f} nats/token",
        grouped(shop.data.val->tokens()), shop.data.val_found->unigram_entropy));
  } else {
    lines.emplace_back("val       none: data.val is empty");
  }
  return lines;
}

std::vector<std::string> schedule_lines(const Workshop& shop) {
  const Schedule& schedule = shop.schedule;
  const double epochs =
      static_cast<double>(schedule.total_tokens()) /
      static_cast<double>(epoch_tokens(shop.data.train.tokens(), schedule.page()));
  std::vector<std::string> lines = {fmt::format("schedule  {} steps, {} tokens, {:.2f} epochs",
                                                grouped(schedule.steps()),
                                                grouped(schedule.total_tokens()), epochs)};
  const bool nsa = shop.config.attention.kind == AttentionKind::kNsa;
  lines.push_back(fmt::format("  {:>5}  {:>15}  {:>7}  {:>11}  {:>11}  {:>4}  {:>7}", "stage",
                              "steps", "seq_len", "tokens/step", "micro-batch", "rate", "density"));
  for (std::size_t i = 0; i < schedule.stages().size(); ++i) {
    const StageSpan& stage = schedule.stages()[i];
    const std::string density =
        nsa ? fmt::format("{:.3f}", attention_density(stage.config.seq_len, stage.geometry,
                                                      shop.config.attention))
            : "-";
    lines.push_back(fmt::format("  {:>5}  {:>15}  {:>7}  {:>11}  {:>11}  {:>4}  {:>7}", i,
                                fmt::format("{}-{}", stage.first_step + 1, stage.end_step),
                                stage.config.seq_len, stage.config.tokens_per_step,
                                stage.micro_batch, nsa ? std::to_string(stage.geometry.rate) : "-",
                                density));
  }
  return lines;
}

std::string memory_line(const Workshop& shop) {
  const std::int64_t moment = shop.store.m().bytes();
  return fmt::format(
      "memory    weights {}, gradients {}, m {}, v {}, activations {}; {} allocated in all",
      size_text(shop.store.weights().bytes()), size_text(shop.store.gradients().bytes()),
      size_text(moment), size_text(moment), size_text(shop.model.activation_bytes()),
      size_text(shop.backend.device->allocated_bytes()));
}

}  // namespace

std::string grouped(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string size_text(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1024.0 * 1024.0);
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024.0);
}

std::vector<std::string> start_report(const Workshop& shop) {
  std::vector<std::string> lines = {
      "nsa_train " + full_version(),
      fmt::format("run       {}, writes to {}", shop.config.run.name, shop.config.run.out_dir),
      device_line(shop), model_line(shop)};
  const auto append = [&lines](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  append(data_lines(shop));
  append(schedule_lines(shop));
  lines.push_back(memory_line(shop));
  lines.push_back(fmt::format(
      "disk      a checkpoint takes {}; {} are free in {}", size_text(checkpoint_bytes(shop.store)),
      size_text(free_bytes(shop.config.checkpoint.dir)), shop.config.checkpoint.dir));
  return lines;
}

std::int64_t peak_memory(Device& device) {
  const std::optional<DeviceMemory> whole = device.memory();
  return whole ? whole->peak_used : device.peak_bytes();
}

std::string peak_memory_line(const Workshop& shop) {
  Device& device = *shop.backend.device;
  const std::int64_t peak = peak_memory(device);
  const std::int64_t planned = shop.planned.total();
  const double over = 100.0 * (static_cast<double>(planned) / static_cast<double>(peak) - 1.0);
  std::string line = fmt::format("memory    peak {}, planned {} ({:+.1f} %)", size_text(peak),
                                 size_text(planned), over);
  if (const std::optional<DeviceMemory> whole = device.memory()) {
    line += fmt::format("; {} of it allocated, {} of {} free", size_text(device.peak_bytes()),
                        size_text(whole->free), size_text(whole->total));
  }
  return line;
}

}  // namespace nsa
