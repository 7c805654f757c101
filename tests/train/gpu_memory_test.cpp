#include "train/gpu_memory.h"

#include <gtest/gtest.h>

#include "support/model_config.h"
#include "train/schedule.h"

namespace nsa {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Layers of 16 query heads of 64 channels over one KV head, one sequence at once.
Config wide(std::int64_t layers, std::int64_t seq_len) {
  Config config = test::small_config();
  config.run.device = "cuda";
  config.train.steps = 1;
  config.model.vocab_size = 4096;
  config.model.layers = layers;
  config.model.hidden = 1024;
  config.model.heads = 16;
  config.model.kv_heads = 1;
  config.model.head_dim = config.model.v_head_dim = config.model.rope_dim = 64;
  config.attention.select = {.block = 64, .top_n = 16, .initial = 1, .local = 2};
  config.schedule.stages = {
      {.from = {}, .seq_len = seq_len, .rate = 16, .tokens_per_step = seq_len, .micro_batch = 1}};
  return config;
}

GpuMemory planned(const Config& config) {
  return plan_gpu_memory(config, Layout(config), Schedule(config, 0));
}

TEST(GpuMemoryPlan, IsTheSumOfItsParts) {
  const GpuMemory memory = planned(wide(2, 8192));
  EXPECT_EQ(memory.total(), memory.scratch + memory.workspace + memory.tables + memory.context);
  EXPECT_GT(memory.context, 100 * kMiB);
}

TEST(GpuMemoryPlan, ScratchDoesNotGrowWithTheLayers) {
  EXPECT_EQ(planned(wide(2, 32768)).scratch, planned(wide(8, 32768)).scratch);
}

/// The lists of queries are cut into a fixed number of spans at most: the slots of their parts,
/// nearly all of the scratch, must not grow with the square of the context.
TEST(GpuMemoryPlan, ScratchGrowsNoFasterThanTheContext) {
  const std::int64_t at_256k = planned(wide(2, 262144)).scratch;
  const std::int64_t at_1m = planned(wide(2, 1048576)).scratch;
  EXPECT_LT(at_1m, 4.1 * static_cast<double>(at_256k));
}

/// Documents as short as one token are rehearsed: that must not ask for room that no batch needs.
TEST(GpuMemoryPlan, ShortDocumentsTakeLittleMoreThanLongOnes) {
  Config config = wide(2, 131072);
  const std::int64_t longest = planned(config).scratch;
  config.data.doc_mask = true;
  EXPECT_LT(planned(config).scratch, 2 * longest);
}

/// The algorithm of a product is chosen beside a copy of what the product adds to.
TEST(GpuMemoryPlan, TheLargestMatrixStandsTwiceForAMoment) {
  Config config = wide(2, 1024);
  config.model.vocab_size = 65536;
  EXPECT_GE(planned(config).scratch, std::int64_t{65536} * 1024 * 4);
}

TEST(GpuMemoryPlan, TheStageThatNeedsMostCounts) {
  Config config = wide(2, 8192);
  const GpuMemory first = planned(config);
  config.train.steps = 2;
  config.schedule.stages.push_back({.from = {.count = 1, .in_tokens = false},
                                    .seq_len = 65536,
                                    .rate = 32,
                                    .tokens_per_step = 65536,
                                    .micro_batch = 1});
  EXPECT_GT(planned(config).scratch, first.scratch);
  EXPECT_GT(planned(config).tables, first.tables);
}

TEST(GpuMemoryPlan, ValidationHasABatchOfItsOwn) {
  Config config = wide(2, 8192);
  const std::int64_t without = planned(config).tables;
  config.data.val = {"val.bin"};
  EXPECT_EQ(planned(config).tables, without + 8192 * 16);
}

}  // namespace
}  // namespace nsa
