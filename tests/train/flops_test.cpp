#include "train/flops.h"

#include <vector>

#include <gtest/gtest.h>

#include "config/presets.h"

namespace nsa {
namespace {

// Counts, query by query, what the branches visit: the definition that the closed forms must meet.
struct Counted {
  std::int64_t compressed = 0;
  std::int64_t selected = 0;
  std::int64_t window = 0;
};

Counted count(std::int32_t tokens, const NsaGeometry& geometry) {
  Counted counted;
  for (std::int32_t t = 0; t < tokens; ++t) {
    counted.compressed += geometry.visible_blocks(t);
    counted.window += t - geometry.window_begin(t) + 1;
    const std::int32_t current = geometry.current_block(t);
    counted.selected += std::int64_t{geometry.blocks_taken(t) - 1} * geometry.select_block;
    counted.selected += t - current * geometry.select_block + 1;
  }
  return counted;
}

std::vector<NsaGeometry> geometries() {
  std::vector<NsaGeometry> all;
  for (const std::int32_t rate : {1, 2, 4, 8}) {
    for (const std::int32_t overlap : {1, 2}) {
      for (const std::int32_t top_n : {2, 3, 7}) {
        all.push_back({.rate = rate,
                       .overlap = overlap,
                       .select_block = 16,
                       .top_n = top_n,
                       .initial = 1,
                       .local = 1,
                       .window = 24});
      }
    }
  }
  return all;
}

TEST(Pairs, ClosedFormsMeetTheCountQueryByQuery) {
  for (const NsaGeometry& geometry : geometries()) {
    for (std::int32_t tokens = 0; tokens <= 200; ++tokens) {
      const Counted counted = count(tokens, geometry);
      ASSERT_EQ(pairs_compressed(tokens, geometry), counted.compressed) << tokens;
      ASSERT_EQ(pairs_selected(tokens, geometry), counted.selected) << tokens;
      ASSERT_EQ(pairs_window(tokens, geometry), counted.window) << tokens;
    }
  }
}

TEST(Pairs, RateOneIsDenseAttention) {
  const NsaGeometry geometry{.rate = 1};
  EXPECT_EQ(pairs_compressed(1000, geometry), pairs_full(1000));
}

TEST(Pairs, AverageKeysOfThePaperSettingsAreThoseOfTheSpecification) {
  const NsaGeometry paper{};
  const AttentionConfig all;
  // dense / NSA at 8k and 64k: 2.43 and 9.25.
  EXPECT_NEAR(1 / attention_density(8192, paper, all), 2.43, 0.01);
  EXPECT_NEAR(1 / attention_density(65536, paper, all), 9.25, 0.01);
}

TEST(Pairs, ABranchThatIsOffCostsNothingButTheScores) {
  const NsaGeometry geometry{};
  AttentionConfig selected_only;
  selected_only.compressed = false;
  selected_only.window_branch = false;
  const double expected =
      static_cast<double>(pairs_selected(4096, geometry) + pairs_compressed(4096, geometry)) /
      static_cast<double>(pairs_full(4096));
  EXPECT_DOUBLE_EQ(attention_density(4096, geometry, selected_only), expected);
}

/// The model of a preset, resolved.
Config of_preset(const char* name) {
  const Preset* preset = find_preset(name);
  Config config;
  config.model.vocab_size = preset->vocab_size;
  config.model.layers = preset->layers;
  config.model.hidden = preset->hidden;
  config.model.heads = preset->heads;
  config.model.kv_heads = preset->kv_heads;
  config.model.head_dim = preset->head_dim;
  config.model.v_head_dim = preset->head_dim;
  config.model.rope_dim = preset->head_dim;
  config.model.ffn = preset->ffn;
  config.attention.compress.hidden_key = preset->head_dim;
  config.attention.compress.hidden_value = preset->head_dim;
  config.schedule.stages = {{.from = {}, .seq_len = 8192, .rate = 16, .tokens_per_step = 8192}};
  return config;
}

TEST(ForwardFlops, ThoseOfThePresetsAreTheTableOfTheSpecification) {
  for (const char* name : {"tiny", "110m", "350m", "1b", "3b", "7b"}) {
    const Config config = of_preset(name);
    const ModelConfig& m = config.model;
    const NsaGeometry geometry = geometry_of(config.attention, 16);
    const double tokens = 8192;
    const auto layers = static_cast<double>(m.layers);
    const auto hidden = static_cast<double>(m.hidden);
    const auto heads = static_cast<double>(m.heads);
    const auto kv_heads = static_cast<double>(m.kv_heads);
    const auto dim = static_cast<double>(m.head_dim);
    const ForwardFlops flops = forward_flops(config, 8192, geometry);
    const double columns = heads * dim + 3 * kv_heads * (dim + dim) + 3 * heads + heads * dim;
    EXPECT_DOUBLE_EQ(flops.projections, layers * 2 * hidden * columns) << name;
    EXPECT_DOUBLE_EQ(flops.mlp, layers * 6 * hidden * static_cast<double>(m.ffn)) << name;
    EXPECT_DOUBLE_EQ(flops.head, 2 * hidden * static_cast<double>(m.vocab_size)) << name;
    const Counted counted = count(8192, geometry);
    const auto pairs = static_cast<double>(counted.compressed + counted.selected + counted.window);
    EXPECT_NEAR(flops.attention, layers * 2 * heads * (dim + dim) * pairs / tokens,
                1e-12 * flops.attention)
        << name;
    const double blocks = 511;  // of 32 tokens, every 16
    const double phi = kv_heads * (2 * blocks * 32 * dim + 4 * blocks * dim * dim);
    EXPECT_NEAR(flops.compressor, layers * 2 * phi / tokens, 1e-12 * flops.compressor) << name;
  }
}

TEST(ForwardFlops, A350mModelAt8kCostsWhatWasCountedByHand) {
  const Config config = of_preset("350m");
  const ForwardFlops flops = forward_flops(config, 8192, geometry_of(config.attention, 16));
  EXPECT_DOUBLE_EQ(flops.projections, 121896960.0);
  EXPECT_DOUBLE_EQ(flops.mlp, 415236096.0);
  EXPECT_DOUBLE_EQ(flops.head, 67108864.0);
  EXPECT_NEAR(flops.attention, 165455028.0, 1);
}

TEST(ForwardFlops, DenseLayersCountEveryCausalPair) {
  Config config = of_preset("350m");
  config.attention.kind = AttentionKind::kDense;
  const ForwardFlops flops = forward_flops(config, 4096, geometry_of(config.attention, 16));
  EXPECT_DOUBLE_EQ(flops.attention, 24 * 2.0 * 16 * 128 * 4097 / 2);
  EXPECT_EQ(flops.compressor, 0);
  EXPECT_DOUBLE_EQ(flops.projections, 24 * 2.0 * 1024 * (1024 + 128 + 1024));
}

TEST(ForwardFlops, ABypassedCompressorIsFree) {
  const Config config = of_preset("350m");
  EXPECT_EQ(forward_flops(config, 2048, geometry_of(config.attention, 1)).compressor, 0);
}

TEST(ForwardFlops, KeysThatOnlyScoreBlocksAreNotModelFlops) {
  Config all = of_preset("350m");
  Config scored = all;
  scored.attention.compressed = false;
  const NsaGeometry geometry = geometry_of(all.attention, 16);
  const double difference = forward_flops(all, 8192, geometry).attention -
                            forward_flops(scored, 8192, geometry).attention;
  const auto pairs = static_cast<double>(count(8192, geometry).compressed);
  EXPECT_NEAR(difference, 24 * 2.0 * 16 * 128 * pairs / 8192, 1);
  EXPECT_EQ(forward_flops(scored, 8192, geometry).compressor, 0);
}

}  // namespace
}  // namespace nsa
