#include "train/plan.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/format.h"
#include "model/transformer.h"
#include "support/errors.h"
#include "support/model_config.h"
#include "train/schedule.h"
#include "train/start_report.h"
#include "train/workshop.h"

namespace nsa {
namespace {

/// 10 steps in two stages; the second has the longer context and the smaller micro-batch.
Config two_stages() {
  Config config = test::small_config();
  config.run.device = "cpu";
  config.data.train = {"/nowhere/train_*.bin"};
  config.tokenizer.model = "/nowhere/tok.model";
  config.train.steps = 10;
  config.optim.lr = 0.5;
  config.schedule.lr.kind = LrKind::kConstant;
  config.schedule.lr.warmup = {.count = 4, .in_tokens = false};
  config.schedule.stages = {
      {.from = {}, .seq_len = 24, .rate = 2, .tokens_per_step = 96},
      {.from = {.count = 6, .in_tokens = false}, .seq_len = 48, .rate = 4, .tokens_per_step = 48}};
  return config;
}

/// The words that follow the first `begin` of `text` on its line.
std::vector<std::string> words_after(const std::string& text, const std::string& begin) {
  std::istringstream lines(text.substr(text.find(begin) + begin.size()));
  std::vector<std::string> words;
  std::string line;
  std::getline(lines, line);
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// The part of the report that a heading opens.
std::string section(const std::string& report, const std::string& heading) {
  const std::size_t at = report.find('\n' + heading);
  return at == std::string::npos ? "" : report.substr(at + 1);
}

/// What a store and a model really allocate, against the plan.
void expect_memory_as_planned(const Config& config) {
  const MemoryPlan plan = plan_memory(config);
  Backend backend = make_backend("cpu", 1);
  const std::int64_t before = backend.device->allocated_bytes();
  ParameterStore store(Layout(config), backend, DType::kF32);
  const std::int64_t with_store = backend.device->allocated_bytes();
  EXPECT_EQ(with_store - before, plan.weights + plan.gradients + plan.m + plan.v);
  const Transformer model(config, store, backend, shapes_of(Schedule(config, 0)));
  EXPECT_EQ(model.activation_bytes(), plan.activations);
  constexpr std::int64_t kLossSums = 16;
  EXPECT_EQ(backend.device->allocated_bytes() - before, plan.total() + kLossSums);
}

TEST(MemoryPlan, IsWhatStoreAndModelAllocate) {
  expect_memory_as_planned(two_stages());
}

TEST(MemoryPlan, IsWhatStoreAndModelAllocateUnderEverySetting) {
  const std::vector<std::function<void(Config&)>> settings = {
      [](Config& c) { c.memory.recompute = Recompute::kSelective; },
      [](Config& c) { c.memory.recompute = Recompute::kFull; },
      [](Config& c) { c.attention.dense_layers = {0}; },
      [](Config& c) { c.attention.kind = AttentionKind::kDense; },
      [](Config& c) { c.attention.share_kv = true; },
      [](Config& c) { c.attention.compressed = false; },
      [](Config& c) { c.model.qk_norm = true; },
      [](Config& c) { c.model.tie_embeddings = false; },
      [](Config& c) { c.memory.logits_chunks = 5; }};
  for (std::size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(i);
    Config config = two_stages();
    settings[i](config);
    expect_memory_as_planned(config);
  }
}

TEST(MemoryPlan, TheChunkOfLogitsIsPartOfTheActivations) {
  Config config = two_stages();
  config.memory.logits_chunks = 4;
  // The largest micro-batch has 96 rows.
  EXPECT_EQ(plan_memory(config).logits, 96 / 4 * config.model.vocab_size * 4);
}

/// A preset's sizes on a GPU that this machine need not have.
Config on_a_gpu(std::int64_t layers, std::int64_t seq_len) {
  Config config = two_stages();
  config.run.device = "cuda";
  config.model.vocab_size = 32768;
  config.model.layers = layers;
  config.model.hidden = 1024;
  config.model.heads = 16;
  config.model.kv_heads = 1;
  config.model.head_dim = config.model.v_head_dim = config.model.rope_dim = 64;
  config.model.ffn = 2816;
  config.schedule.stages.resize(1);
  config.schedule.stages.front() = {
      .from = {}, .seq_len = seq_len, .rate = 16, .tokens_per_step = seq_len};
  return config;
}

TEST(MemoryPlan, OfAGpuCountsWhatItsBackendTakes) {
  const MemoryPlan cpu = plan_memory(two_stages());
  EXPECT_EQ(cpu.gpu.total(), 0);
  const MemoryPlan plan = plan_memory(on_a_gpu(2, 32768));
  EXPECT_EQ(plan.total(), plan.certain() + plan.gpu.scratch + plan.gpu.workspace + plan.gpu.tables +
                              plan.gpu.context);
  // The copy of the embedding's gradient while a product's algorithm is chosen, at least.
  EXPECT_GE(plan.gpu.scratch, std::int64_t{32768} * 1024 * 4);
  EXPECT_GT(plan_memory(on_a_gpu(2, 131072)).gpu.scratch, plan.gpu.scratch);
}

TEST(MemoryPlan, MomentsInBf16TakeHalf) {
  Config config = on_a_gpu(2, 32768);
  const MemoryPlan fp32 = plan_memory(config);
  config.precision.optim_states = "bf16";
  const MemoryPlan bf16 = plan_memory(config);
  EXPECT_EQ(2 * bf16.m, fp32.m);
  EXPECT_EQ(2 * bf16.v, fp32.v);
  EXPECT_EQ(fp32.total() - bf16.total(), fp32.m);
}

TEST(MemoryPlan, WhatIsOffloadedIsNotOnTheGpu) {
  Config config = on_a_gpu(2, 32768);
  const MemoryPlan on_gpu = plan_memory(config);
  config.memory.offload = "optimizer";
  const MemoryPlan offloaded = plan_memory(config);
  EXPECT_EQ(offloaded.offloaded, on_gpu.master + on_gpu.m + on_gpu.v);
  EXPECT_EQ(on_gpu.total() - offloaded.total(), offloaded.offloaded);
  const std::string memory = section(plan_report(config), "memory");
  EXPECT_NE(memory.find("in host memory, beside these: master weights, m and v, " +
                        size_text(offloaded.offloaded)),
            std::string::npos)
      << memory;
}

TEST(MemoryPlan, WhatPrecisionOrDeviceRuleOutIsRefused) {
  Config config = two_stages();
  config.memory.offload = "optimizer";
  test::expect_error(ExitCode::kConfig, {"memory.offload is optimizer", "memory.offload: none"},
                     [&] { plan_memory(config); });
  config = two_stages();
  config.precision.compute = "fp64";
  config.precision.optim_states = "bf16";
  test::expect_error(ExitCode::kConfig,
                     {"precision.optim_states is bf16", "precision.optim_states: fp32"},
                     [&] { plan_memory(config); });
}

TEST(PlanReport, OfAGpuNeedsNone) {
  const std::string memory = section(plan_report(on_a_gpu(2, 32768)), "memory");
  const MemoryPlan plan = plan_memory(on_a_gpu(2, 32768));
  EXPECT_EQ(words_after(memory, "memory    ").at(0) + " " + words_after(memory, "memory    ").at(1),
            size_text(plan.total()) + ",");
  EXPECT_NE(memory.find("scratch of ops " + size_text(plan.gpu.scratch)), std::string::npos)
      << memory;
}

TEST(PlanReport, NeedsNeitherDataNorTokenizer) {
  EXPECT_NE(plan_report(two_stages()).find("10 steps"), std::string::npos);
}

TEST(PlanReport, TellsStepsAndLearningRatesAtTheEdgesOfStages) {
  const std::string schedule = section(plan_report(two_stages()), "schedule");
  EXPECT_EQ(words_after(schedule, "\n      0"),
            (std::vector<std::string>{"1-6", "24", "96", "4", "0.125", "0.5"}));
  EXPECT_EQ(words_after(schedule, "\n      1"),
            (std::vector<std::string>{"7-10", "48", "48", "1", "0.5", "0.5"}));
}

TEST(PlanReport, KeysOfAQueryAreThoseCountedOneByOne) {
  const Config config = two_stages();
  const std::string attention = section(plan_report(config), "attention");
  const Schedule schedule(config, 0);
  for (const StageSpan& stage : schedule.stages()) {
    const NsaGeometry& g = stage.geometry;
    const auto tokens = static_cast<std::int32_t>(stage.config.seq_len);
    double compressed = 0;
    double selected = 0;
    double window = 0;
    for (std::int32_t t = 0; t < tokens; ++t) {
      compressed += g.visible_blocks(t);
      selected += (g.blocks_taken(t) - 1) * g.select_block + t % g.select_block + 1;
      window += std::min(t + 1, g.window);
    }
    const auto mean = [tokens](double sum) { return fmt::format("{:.1f}", sum / tokens); };
    const double dense = tokens * (tokens + 1) / 2.0;
    const double sum = compressed + selected + window;
    EXPECT_EQ(words_after(attention, stage.first_step == 0 ? "\n      0" : "\n      1"),
              (std::vector<std::string>{std::to_string(tokens), std::to_string(g.rate),
                                        mean(compressed), mean(selected), mean(window), mean(sum),
                                        mean(dense), fmt::format("{:.3f}", sum / dense)}));
  }
}

TEST(PlanReport, DiskHoldsWhatIsKeptAndWhatIsBeingWritten) {
  Config config = two_stages();
  config.checkpoint.keep_last = 2;
  const std::string disk = section(plan_report(config), "disk");
  const Layout layout(config);
  const std::int64_t each = std::int64_t{12} * layout.size() +
                            256 * static_cast<std::int64_t>(layout.parameters().size()) + 65536;
  EXPECT_NE(disk.find("takes " + size_text(each) + "; " + size_text(3 * each) + " for keep_last"),
            std::string::npos)
      << disk;
}

TEST(PlanReport, ARunCountedInEpochsIsRefusedWithAWayOut) {
  Config config = two_stages();
  config.train.steps.reset();
  config.train.epochs = 2;
  test::expect_error(ExitCode::kConfig, {"train.epochs", "--override train.steps=N"},
                     [&] { plan_report(config); });
}

}  // namespace
}  // namespace nsa
