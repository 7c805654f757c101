// The plan of a GPU's memory against what the backend really takes.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/transformer.h"
#include "ops/backend.h"
#include "support/model_config.h"
#include "train/own_batch.h"
#include "train/plan.h"
#include "train/schedule.h"
#include "train/workshop.h"

namespace nsa {
namespace {

Config wide_config(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                   std::int64_t seq_len) {
  Config config = test::small_config();
  config.run.device = "cuda";
  config.precision.compute = "bf16";
  config.train.steps = 1;
  config.model.vocab_size = 8192;
  config.model.layers = 2;
  config.model.hidden = 1024;
  config.model.heads = heads;
  config.model.kv_heads = kv_heads;
  config.model.head_dim = config.model.v_head_dim = config.model.rope_dim = head_dim;
  config.attention.compress.hidden_key = config.attention.compress.hidden_value = head_dim;
  config.attention.select = {.block = 64, .top_n = 16, .initial = 1, .local = 2};
  config.attention.window = 512;
  config.model.ffn = 2816;
  config.schedule.stages = {
      {.from = {}, .seq_len = seq_len, .rate = 16, .tokens_per_step = seq_len, .micro_batch = 1}};
  return config;
}

/// All that the backend allocated for a rehearsal, at its peak, against the plan without what the
/// driver takes.
void expect_planned(const Config& config) {
  const Schedule schedule(config, 0);
  const MemoryPlan plan = plan_memory(config, schedule);
  Backend backend = make_backend("cuda");
  ParameterStore store(Layout(config), backend, DType::kBF16);
  store.initialize(1);
  Transformer model(config, store, backend, shapes_of(schedule));
  const std::int64_t rows = shapes_of(schedule).front().rows;
  OwnBatch own(*backend.device, rows);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows), 7);
  const NsaGeometry geometry = schedule.stages().front().geometry;
  model.train_micro(own.make(tokens, rows), geometry, 1.0);
  if (config.data.doc_mask) model.train_micro(own.make(tokens, 1), geometry, 1.0);
  model.train_micro(own.make(tokens, rows), geometry, 1.0);
  model.take_loss_sums();
  const auto real = static_cast<double>(backend.device->peak_bytes());
  const auto planned = static_cast<double>(plan.total() - plan.gpu.context);
  EXPECT_GE(planned, 0.95 * real) << planned / real;
  EXPECT_LE(planned, 1.10 * real) << planned / real;
}

TEST(MemoryKernel, ThePlanIsWhatTheBackendTakes) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU";
  const std::vector<std::function<void(Config&)>> settings = {
      [](Config&) {}, [](Config& c) { c.attention.kind = AttentionKind::kDense; },
      [](Config& c) { c.data.doc_mask = true; },
      [](Config& c) { c.memory.recompute = Recompute::kFull; },
      [](Config& c) { c.model.qk_norm = true; }};
  for (std::size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(i);
    Config config = wide_config(16, 1, 64, 8192);
    settings[i](config);
    expect_planned(config);
  }
  expect_planned(wide_config(12, 12, 64, 4096));
  Config long_and_packed = wide_config(16, 2, 128, 32768);
  expect_planned(long_and_packed);
  long_and_packed.data.doc_mask = true;
  expect_planned(long_and_packed);
}

/// All gradients of some micro-batches of documents of 3,000 tokens.
std::vector<float> gradients_of(const std::vector<std::vector<std::int32_t>>& batches) {
  constexpr std::int64_t kDocument = 3000;
  const Config config = wide_config(16, 1, 64, 30720);
  const Schedule schedule(config, 0);
  Backend backend = make_backend("cuda");
  ParameterStore store(Layout(config), backend, DType::kBF16);
  store.initialize(1);
  Transformer model(config, store, backend, shapes_of(schedule));
  OwnBatch own(*backend.device, 30720);
  for (const std::vector<std::int32_t>& tokens : batches) {
    model.train_micro(own.make(tokens, kDocument), schedule.stages().front().geometry, 1e-4);
  }
  std::vector<float> gradients(static_cast<std::size_t>(store.gradients().size()));
  backend.device->copy_to_host(gradients.data(), store.gradients().data(),
                               store.gradients().bytes());
  return gradients;
}

/// Selected attention cuts the lists of a long batch by spans of queries, and takes room for the
/// few documents that cross the end of one.
TEST(MemoryKernel, DocumentsThatCrossASpanGetTheGradientsOfShorterBatches) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU";
  std::vector<std::int32_t> tokens(30000);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 2654435761U % 8191U);
  }
  const auto half = tokens.begin() + 15000;
  const std::vector<float> whole = gradients_of({tokens});
  const std::vector<float> halves = gradients_of({{tokens.begin(), half}, {half, tokens.end()}});
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    difference += std::pow(static_cast<double>(whole[i]) - static_cast<double>(halves[i]), 2);
    size += std::pow(static_cast<double>(halves[i]), 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(std::sqrt(difference / size), 0.02);
}

TEST(MemoryKernel, AGpuTellsItsMemoryAndItsPeak) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU";
  Backend backend = make_backend("cuda");
  const DeviceMemory before = *backend.device->memory();
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  { const Buffer buffer(*backend.device, kBytes); }
  const DeviceMemory after = *backend.device->memory();
  EXPECT_GE(after.peak_used, before.total - before.free + kBytes);
  EXPECT_EQ(after.total, before.total);
}

TEST(MemoryKernel, AnAllocationThatDoesNotFitTellsTheAdvice) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU";
  Backend backend = make_backend("cuda");
  backend.device->set_memory_advice("take a larger GPU");
  try {
    const Buffer buffer(*backend.device, backend.device->memory()->total + (std::int64_t{1} << 30));
    FAIL() << "more than the GPU has was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRuntime);
    EXPECT_NE(std::string(error.what()).find("; take a larger GPU"), std::string::npos);
  }
  EXPECT_NO_THROW(Buffer(*backend.device, 1 << 20));  // the GPU is still usable
}

}  // namespace
}  // namespace nsa
