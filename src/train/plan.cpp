#include "train/plan.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "config/device.h"
#include "core/error.h"
#include "core/format.h"
#include "model/transformer.h"
#include "params/layout.h"
#include "train/checkpoint.h"
#include "train/flops.h"
#include "train/schedule.h"
#include "train/start_report.h"
#include "train/version.h"
#include "train/workshop.h"

namespace nsa {
namespace {

std::vector<ActivationBytes> activations_of(const Config& config, const Layout& layout, DType dtype,
                                            const Schedule& schedule) {
  std::vector<ActivationBytes> by_stage;
  for (const MicroShape& shape : shapes_of(schedule)) {
    by_stage.push_back(plan_activations(config, layout, dtype, shape));
  }
  return by_stage;
}

/// Everything that the lines below are made of.
struct Plan {
  explicit Plan(const Config& configured)
      : config(with_choices(configured)),
        dtype(compute_dtype(config)),
        layout(config),
        schedule(config, 0) {
    activations = activations_of(config, layout, dtype, schedule);
  }

  bool has_nsa_layers() const {
    std::int64_t layer = 0;
    while (layer < config.model.layers && is_dense_layer(config.attention, layer)) ++layer;
    return layer < config.model.layers;
  }

  Config config;
  DType dtype;
  Layout layout;
  Schedule schedule;
  std::vector<ActivationBytes> activations;  ///< by stage
};

Plan make_plan(const Config& config) {
  if (config.train.epochs) {
    fail_config(
        "train.epochs is set, and how many steps that is depends on the data, which --plan does "
        "not read; give the length of the run with --override train.steps=N or train.tokens=N");
  }
  return Plan(config);
}

MemoryPlan memory_of(const Config& config, const Layout& layout, DType dtype,
                     const Schedule& schedule, const std::vector<ActivationBytes>& activations) {
  const DType master = grad_dtype(dtype);
  const StateStorage state = state_storage(config);
  const std::int64_t flat = layout.size() * size_of(master);
  const std::int64_t moment = layout.size() * size_of(state.bf16_moments ? DType::kBF16 : master);
  const std::int64_t own_master = master == dtype ? 0 : flat;
  const auto most =
      std::max_element(activations.begin(), activations.end(),
                       [](const auto& a, const auto& b) { return a.arena < b.arena; });
  return {.weights = layout.size() * size_of(dtype),
          .master = own_master,
          .gradients = flat,
          .m = moment,
          .v = moment,
          .offloaded = state.on_host ? own_master + 2 * moment : 0,
          .activations = most->arena,
          .logits = most->logits,
          .gpu = runs_on_gpu(config) ? plan_gpu_memory(config, layout, schedule) : GpuMemory{}};
}

/// "12.3 G"
std::string short_number(double count) {
  static constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  std::size_t prefix = 0;
  while (count >= 1000 && prefix + 1 < kPrefixes.size()) {
    count /= 1000;
    ++prefix;
  }
  return fmt::format("{:.4g} {}", count, kPrefixes[prefix]);
}

std::string model_lines(const Plan& plan) {
  const ModelConfig& model = plan.config.model;
  std::int64_t embedding = 0;
  std::int64_t attention = 0;
  std::int64_t compressors = 0;
  std::int64_t mlp = 0;
  std::int64_t rest = 0;
  for (const Parameter& parameter : plan.layout.parameters()) {
    const auto in = [&parameter](const char* part) {
      return parameter.name.find(part) != std::string::npos;
    };
    std::int64_t& sum = in("embedding.weight") || in("head.weight") ? embedding
                        : in(".phi_")                               ? compressors
                        : in(".attn.")                              ? attention
                        : in(".mlp.")                               ? mlp
                                                                    : rest;
    sum += parameter.size();
  }
  return fmt::format(
      "model     {} layers x {}, {} heads, {} kv heads, head dims {} and {}, ffn {}, vocabulary "
      "{}\n"
      "          {} parameters, {} without embeddings\n"
      "          embeddings {}, attention {}, compressors {}, mlp {}, norms {}\n",
      model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.v_head_dim,
      model.ffn, grouped(model.vocab_size), grouped(plan.layout.parameter_count()),
      grouped(plan.layout.non_embedding_count()), grouped(embedding), grouped(attention),
      grouped(compressors), grouped(mlp), grouped(rest));
}

std::string schedule_lines(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  std::string text = fmt::format("schedule  {} steps, {} tokens\n", grouped(schedule.steps()),
                                 grouped(schedule.total_tokens()));
  text += fmt::format("  {:>5}  {:>15}  {:>8}  {:>11}  {:>11}  {:>9}  {:>9}\n", "stage", "steps",
                      "seq_len", "tokens/step", "micro-batch", "first lr", "last lr");
  for (std::size_t i = 0; i < schedule.stages().size(); ++i) {
    const StageSpan& stage = schedule.stages()[i];
    text += fmt::format("  {:>5}  {:>15}  {:>8}  {:>11}  {:>11}  {:>9.3g}  {:>9.3g}\n", i,
                        fmt::format("{}-{}", stage.first_step + 1, stage.end_step),
                        stage.config.seq_len, stage.config.tokens_per_step, stage.micro_batch,
                        schedule.learning_rate(stage.first_step),
                        schedule.learning_rate(stage.end_step - 1));
  }
  return text;
}

/// Keys that a query reads on average in a document as long as the context.
std::string attention_lines(const Plan& plan) {
  if (!plan.has_nsa_layers()) return "attention dense: a query reads every key before it\n";
  const AttentionConfig& attention = plan.config.attention;
  std::string text =
      "attention keys that a query reads, on average, in an NSA layer; density: their sum by "
      "dense\n";
  text +=
      fmt::format("  {:>5}  {:>8}  {:>5}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>7}\n", "stage",
                  "seq_len", "rate", "compressed", "selected", "window", "sum", "dense", "density");
  for (std::size_t i = 0; i < plan.schedule.stages().size(); ++i) {
    const StageSpan& stage = plan.schedule.stages()[i];
    const std::int64_t tokens = stage.config.seq_len;
    const auto per_query = [tokens](bool on, std::int64_t pairs) {
      return on ? static_cast<double>(pairs) / static_cast<double>(tokens) : 0.0;
    };
    // Compressed keys are read for scores even where their branch is off.
    const double compressed =
        per_query(reads_compressed_keys(attention), pairs_compressed(tokens, stage.geometry));
    const double selected = per_query(attention.selected, pairs_selected(tokens, stage.geometry));
    const double window = per_query(attention.window_branch, pairs_window(tokens, stage.geometry));
    text += fmt::format(
        "  {:>5}  {:>8}  {:>5}  {:>10.1f}  {:>9.1f}  {:>9.1f}  {:>9.1f}  {:>9.1f}  {:>7.3f}\n", i,
        tokens, stage.geometry.rate, compressed, selected, window, compressed + selected + window,
        per_query(true, pairs_full(tokens)), attention_density(tokens, stage.geometry, attention));
  }
  return text;
}

std::string flops_lines(const Plan& plan) {
  std::string text =
      "flops     of training, a token: 3 x forward; exact causal pairs, no recomputation\n";
  text += fmt::format("  {:>5}  {:>11}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n", "stage",
                      "projections", "compressor", "attention", "mlp", "head", "sum", "a step");
  double run = 0;
  for (std::size_t i = 0; i < plan.schedule.stages().size(); ++i) {
    const StageSpan& stage = plan.schedule.stages()[i];
    const ForwardFlops forward = forward_flops(plan.config, stage.config.seq_len, stage.geometry);
    const auto trained = [](double flops) { return short_number(kTrainingPerForward * flops); };
    const double step = forward.total() * static_cast<double>(stage.config.tokens_per_step);
    text += fmt::format("  {:>5}  {:>11}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n", i,
                        trained(forward.projections), trained(forward.compressor),
                        trained(forward.attention), trained(forward.mlp), trained(forward.head),
                        trained(forward.total()), trained(step));
    run += kTrainingPerForward * step * static_cast<double>(stage.end_step - stage.first_step);
  }
  return text + fmt::format("          the run: {}FLOP\n", short_number(run));
}

/// What the activations would take under each setting of memory.recompute.
std::string recompute_line(const Plan& plan) {
  std::string text;
  for (const auto& [name, setting] :
       {std::pair{"none", Recompute::kNone}, std::pair{"selective", Recompute::kSelective},
        std::pair{"full", Recompute::kFull}}) {
    Config config = plan.config;
    config.memory.recompute = setting;
    std::int64_t most = 0;
    for (const MicroShape& shape : shapes_of(plan.schedule)) {
      most = std::max(most, plan_activations(config, plan.layout, plan.dtype, shape).arena);
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, size_text(most));
  }
  return "               by memory.recompute: " + text + '\n';
}

MemoryPlan memory_of(const Plan& plan) {
  return memory_of(plan.config, plan.layout, plan.dtype, plan.schedule, plan.activations);
}

std::string gpu_line(const GpuMemory& gpu) {
  return fmt::format(
      "  on the GPU   {:>12}  scratch of ops {}, matmul workspace {}, tables and batches {}, "
      "context {}\n",
      size_text(gpu.total()), size_text(gpu.scratch), size_text(gpu.workspace),
      size_text(gpu.tables), size_text(gpu.context));
}

std::string memory_lines(const Plan& plan) {
  const MemoryPlan memory = memory_of(plan);
  const bool on_gpu = runs_on_gpu(plan.config);
  std::string by_stage;
  for (const ActivationBytes& stage : plan.activations) {
    by_stage += (by_stage.empty() ? "" : ", ") + size_text(stage.arena);
  }
  return fmt::format(
             "memory    {}{}, in {}\n"
             "  weights      {:>12}  {}\n"
             "  gradients    {:>12}\n"
             "  m            {:>12}\n"
             "  v            {:>12}\n"
             "  activations  {:>12}  by stage: {}; {} of the largest are a chunk of logits\n",
             size_text(memory.total()), on_gpu ? "" : " (and scratch of ops, a few MiB a thread)",
             name_of(plan.dtype), size_text(memory.weights),
             memory.master == 0 ? "master weights are the same memory"
                                : "and master weights in fp32 " + size_text(memory.master),
             size_text(memory.gradients), size_text(memory.m), size_text(memory.v),
             size_text(memory.activations), by_stage, size_text(memory.logits)) +
         recompute_line(plan) + (on_gpu ? gpu_line(memory.gpu) : "") +
         (memory.offloaded == 0 ? ""
                                : fmt::format("  in host memory, beside these: master weights, m "
                                              "and v, {}\n",
                                              size_text(memory.offloaded)));
}

std::string disk_lines(const Plan& plan) {
  const CheckpointConfig& checkpoint = plan.config.checkpoint;
  const std::int64_t each = checkpoint_bytes(
      plan.layout, grad_dtype(plan.dtype),
      state_storage(plan.config).bf16_moments ? DType::kBF16 : grad_dtype(plan.dtype));
  std::int64_t most = checkpoint.keep_last + 1;
  std::string text = fmt::format(
      "disk      a checkpoint takes {}; {} for keep_last = {} and the one "
      "being written",
      size_text(each), size_text(most * each), checkpoint.keep_last);
  if (checkpoint.keep_every > 0) {
    const std::int64_t kept = plan.schedule.steps() / checkpoint.keep_every;
    text += fmt::format("; keep_every = {} adds up to {} that stay, {}", checkpoint.keep_every,
                        kept, size_text(kept * each));
  }
  return text + '\n';
}

}  // namespace

MemoryPlan plan_memory(const Config& config) {
  const Plan plan = make_plan(config);
  return memory_of(plan);
}

MemoryPlan plan_memory(const Config& chosen, const Schedule& schedule) {
  const Layout layout(chosen);
  const DType dtype = compute_dtype(chosen);
  return memory_of(chosen, layout, dtype, schedule,
                   activations_of(chosen, layout, dtype, schedule));
}

std::string plan_report(const Config& config) {
  const Plan plan = make_plan(config);
  return fmt::format("plan      nsa_train {}; device {}\n", full_version(),
                     plan.config.run.device) +
         model_lines(plan) + schedule_lines(plan) + attention_lines(plan) + flops_lines(plan) +
         memory_lines(plan) + disk_lines(plan);
}

}  // namespace nsa
