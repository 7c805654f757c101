#include "params/layout.h"

#include <set>

#include <gtest/gtest.h>

#include "support/model_config.h"

namespace nsa {
namespace {

using test::small_config;

std::vector<std::string> names_of(const Layout& layout, const std::string& prefix) {
  std::vector<std::string> names;
  for (const Parameter& parameter : layout.parameters()) {
    if (parameter.name.rfind(prefix, 0) == 0) names.push_back(parameter.name.substr(prefix.size()));
  }
  return names;
}

std::vector<StageConfig> stages_at(const std::vector<std::int64_t>& rates) {
  std::vector<StageConfig> stages(rates.size());
  for (std::size_t i = 0; i < rates.size(); ++i) stages[i].rate = rates[i];
  return stages;
}

TEST(Layout, NsaBlockHasTheDocumentedNames) {
  Config config = small_config();
  config.model.qk_norm = true;
  const std::vector<std::string> wanted = {
      "attn_norm.weight", "attn.q",           "attn.k_cmp",    "attn.v_cmp",
      "attn.k_slc",       "attn.v_slc",       "attn.k_win",    "attn.v_win",
      "attn.gate",        "attn.gate_bias",   "attn.out",      "attn.q_norm",
      "attn.k_norm",      "attn.phi_k.theta", "attn.phi_k.w1", "attn.phi_k.b1",
      "attn.phi_k.w2",    "attn.phi_v.theta", "attn.phi_v.w1", "attn.phi_v.b1",
      "attn.phi_v.w2",    "mlp_norm.weight",  "mlp.gate",      "mlp.up",
      "mlp.down"};
  EXPECT_EQ(names_of(Layout(config), "blocks.1."), wanted);
}

TEST(Layout, DenseBlockHasOnePairAndNoGate) {
  Config config = small_config();
  config.attention.dense_layers = {0};
  const std::vector<std::string> wanted = {"q", "k", "v", "out"};
  EXPECT_EQ(names_of(Layout(config), "blocks.0.attn."), wanted);
}

TEST(Layout, SharedPairStandsForAllThree) {
  Config config = small_config();
  config.attention.share_kv = true;
  config.attention.compress.phi = Phi::kMean;
  const std::vector<std::string> wanted = {"q", "k", "v", "gate", "gate_bias", "out"};
  EXPECT_EQ(names_of(Layout(config), "blocks.0.attn."), wanted);
}

TEST(Layout, PairsExistOnlyWhereABranchReadsThem) {
  Config config = small_config();
  config.attention.compressed = false;
  config.attention.window_branch = false;
  config.attention.compress.phi = Phi::kMeanMlp;
  const std::vector<std::string> wanted = {"q",        "k_cmp",     "k_slc", "v_slc",
                                           "gate",     "gate_bias", "out",   "phi_k.w1",
                                           "phi_k.b1", "phi_k.w2"};
  EXPECT_EQ(names_of(Layout(config), "blocks.0.attn."), wanted);
}

TEST(Layout, FlatCompressorHasTheShapesOfTheStagesThatCompress) {
  Config config = small_config();
  config.attention.compress.phi = Phi::kMlpFlat;
  config.attention.compress.hidden_value = 5;
  config.schedule.stages = stages_at({1, 4});
  const Layout layout(config);
  EXPECT_EQ(layout.find("blocks.0.attn.phi_v.position").shape, (std::vector<std::int64_t>{8, 8}));
  EXPECT_EQ(layout.find("blocks.0.attn.phi_v.w1").shape, (std::vector<std::int64_t>{5, 64}));
  EXPECT_EQ(layout.find("blocks.0.attn.phi_v.w2").shape, (std::vector<std::int64_t>{8, 5}));
}

TEST(Layout, PoolingShapesDoNotDependOnTheRate) {
  Config config = small_config();
  const Layout before(config);
  config.attention.compress.rate = 16;
  config.schedule.stages = stages_at({1, 16});
  EXPECT_EQ(Layout(config).fingerprint(), before.fingerprint());
}

TEST(Layout, ParametersFollowOneAnotherWithoutOverlap) {
  const Layout layout(small_config());
  std::int64_t reached = 0;
  for (const Parameter& parameter : layout.parameters()) {
    EXPECT_GE(layout.begin(parameter), reached) << parameter.name;
    reached = layout.begin(parameter) + parameter.size();
  }
  EXPECT_LE(reached, layout.size());
}

TEST(Layout, BucketsAreAlignedAndCoverTheBuffer) {
  Config config = small_config();
  config.model.hidden = 20;
  const Layout layout(config);
  std::int64_t reached = 0;
  std::vector<std::string> names;
  for (const Bucket& bucket : layout.buckets()) {
    EXPECT_EQ(bucket.begin, reached) << bucket.name;
    EXPECT_EQ(bucket.begin % 64, 0) << bucket.name;
    reached += bucket.size;
    names.push_back(bucket.name);
  }
  EXPECT_EQ(reached, layout.size());
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "block.0", "block.1", "head"}));
}

TEST(Layout, OnlyMatricesDecay) {
  Config config = small_config();
  config.model.qk_norm = true;
  config.attention.compress.phi = Phi::kPoolMlp;
  const std::set<std::string> spared = {"attn_norm.weight", "attn.gate_bias",   "attn.q_norm",
                                        "attn.k_norm",      "attn.phi_k.theta", "attn.phi_k.b1",
                                        "attn.phi_v.theta", "attn.phi_v.b1",    "mlp_norm.weight"};
  const Layout layout(config);
  for (const Parameter& parameter : layout.parameters()) {
    if (parameter.name.rfind("blocks.0.", 0) != 0) continue;
    EXPECT_EQ(parameter.decay, spared.count(parameter.name.substr(9)) == 0) << parameter.name;
  }
  EXPECT_TRUE(layout.find("embedding.weight").decay);
  EXPECT_FALSE(layout.find("head.norm.weight").decay);
}

/// Names, without the block, of what a stage does not train.
std::set<std::string> untrained(const Config& config, std::int64_t rate, std::int64_t seq_len) {
  const Layout layout(config);
  std::set<std::string> names;
  for (const Parameter& parameter : layout.parameters()) {
    if (layout.is_trained(parameter, rate, seq_len)) continue;
    names.insert(parameter.name.substr(std::string("blocks.0.attn.").size()));
  }
  return names;
}

const std::set<std::string> kPhiNames = {"phi_k.theta", "phi_k.w1", "phi_k.b1", "phi_k.w2",
                                         "phi_v.theta", "phi_v.w1", "phi_v.b1", "phi_v.w2"};

TEST(Layout, CompressorsRestUnderTheBypass) {
  EXPECT_EQ(untrained(small_config(), 1, 24), kPhiNames);
}

TEST(Layout, OnlyPoolingLogitsRestAtRateOneWithoutTheBypass) {
  Config config = small_config();
  config.attention.compress.rate1_bypass = false;
  EXPECT_EQ(untrained(config, 1, 24), (std::set<std::string>{"phi_k.theta", "phi_v.theta"}));
}

TEST(Layout, EverythingTrainsWhereABlockFits) {
  EXPECT_EQ(untrained(small_config(), 2, 4), std::set<std::string>{});
}

TEST(Layout, CompressedBranchRestsWhereNoBlockFits) {
  std::set<std::string> wanted = kPhiNames;
  wanted.insert({"k_cmp", "v_cmp"});
  EXPECT_EQ(untrained(small_config(), 2, 3), wanted);
}

TEST(Layout, KeysThatOnlyScoreRest) {
  Config config = small_config();
  config.attention.compressed = false;
  EXPECT_EQ(untrained(config, 2, 24),
            (std::set<std::string>{"k_cmp", "phi_k.theta", "phi_k.w1", "phi_k.b1", "phi_k.w2"}));
}

TEST(Layout, FindNamesTheParameterThatIsMissing) {
  try {
    Layout(small_config()).find("blocks.7.attn.q");
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("blocks.7.attn.q"), std::string::npos);
  }
}

TEST(Layout, FingerprintSeesShapes) {
  Config config = small_config();
  const std::uint32_t before = Layout(config).fingerprint();
  config.model.ffn += 1;
  EXPECT_NE(Layout(config).fingerprint(), before);
}

/// A preset of the documented table, in NSA or dense.
Config preset(ModelConfig model, AttentionKind kind) {
  Config config;
  config.model = std::move(model);
  config.attention.kind = kind;
  config.attention.compress.hidden_key = config.model.head_dim;
  config.attention.compress.hidden_value = config.model.v_head_dim;
  return config;
}

ModelConfig shape_tiny() {
  return {.preset = "tiny",
          .vocab_size = 2048,
          .layers = 4,
          .hidden = 128,
          .heads = 4,
          .kv_heads = 1,
          .head_dim = 32,
          .v_head_dim = 32,
          .ffn = 344,
          .rope_dim = 32};
}
ModelConfig shape_350m() {
  return {.preset = "350m",
          .vocab_size = 32768,
          .layers = 24,
          .hidden = 1024,
          .heads = 16,
          .kv_heads = 1,
          .head_dim = 64,
          .v_head_dim = 64,
          .ffn = 2816,
          .rope_dim = 64};
}
ModelConfig shape_1b() {
  return {.preset = "1b",
          .vocab_size = 32768,
          .layers = 16,
          .hidden = 2048,
          .heads = 16,
          .kv_heads = 1,
          .head_dim = 128,
          .v_head_dim = 128,
          .ffn = 5632,
          .rope_dim = 128};
}

double millions(const Config& config) {
  return static_cast<double>(Layout(config).parameter_count()) / 1e6;
}

TEST(Layout, PresetTinyHasAboutOneMillionParameters) {
  EXPECT_NEAR(millions(preset(shape_tiny(), AttentionKind::kNsa)), 1.0, 0.1);
}

// The table counts one K/V pair; six independent projections and the gates come on top.
TEST(Layout, Preset350mHasTheDocumentedSize) {
  EXPECT_NEAR(millions(preset(shape_350m(), AttentionKind::kDense)), 295.0, 1.0);
  EXPECT_NEAR(millions(preset(shape_350m(), AttentionKind::kNsa)), 302.5, 1.0);
}

TEST(Layout, Preset1bHasTheDocumentedSize) {
  EXPECT_NEAR(millions(preset(shape_1b(), AttentionKind::kDense)), 763.0, 1.0);
  EXPECT_NEAR(millions(preset(shape_1b(), AttentionKind::kNsa)), 782.0, 1.0);
}

TEST(Layout, CountsLeaveOutPadding) {
  Config config = small_config();
  config.model.tie_embeddings = false;
  const Layout layout(config);
  std::int64_t all = 0;
  std::int64_t inner = 0;
  for (const Parameter& parameter : layout.parameters()) {
    all += parameter.size();
    if (parameter.name.rfind("blocks.", 0) == 0) inner += parameter.size();
  }
  EXPECT_EQ(layout.parameter_count(), all);
  EXPECT_EQ(layout.non_embedding_count(), inner);
}

}  // namespace
}  // namespace nsa
