// Initial weights.

#include <cmath>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "params/store.h"
#include "support/model_config.h"

namespace nsa {
namespace {

using test::small_config;

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    values.push_back(tensor.dtype() == DType::kF32 ? static_cast<double>(tensor.as<float>()[i])
                                                   : tensor.as<double>()[i]);
  }
  return values;
}

/// A freshly initialised store on a backend of its own.
struct Fresh {
  explicit Fresh(const Config& config, std::uint64_t seed = 1, DType dtype = DType::kF64)
      : backend(make_backend("cpu", 1)), store(Layout(config), backend, dtype) {
    store.initialize(seed);
  }
  std::vector<double> weight(const std::string& name) const {
    return values_of(store.weight(name));
  }
  Backend backend;
  ParameterStore store;
};

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

Config wide_config() {
  Config config = small_config();
  config.model.hidden = 64;
  config.model.ffn = 128;
  config.model.vocab_size = 300;
  config.model.layers = 8;
  return config;
}

TEST(Initialize, MatricesHaveTheirStandardDeviation) {
  const Fresh fresh(wide_config());
  EXPECT_NEAR(rms(fresh.weight("embedding.weight")), 0.02, 0.02 * 0.03);
  EXPECT_NEAR(rms(fresh.weight("blocks.3.mlp.up")), 0.02, 0.02 * 0.05);
  EXPECT_NEAR(rms(fresh.weight("blocks.3.attn.gate")), 0.02, 0.02 * 0.1);
}

TEST(Initialize, MatricesThatFeedTheResidualStreamAreScaledByDepth) {
  const Fresh fresh(wide_config());
  EXPECT_NEAR(rms(fresh.weight("blocks.0.attn.out")), 0.02 / 4, 0.005 * 0.06);
  EXPECT_NEAR(rms(fresh.weight("blocks.0.mlp.down")), 0.02 / 4, 0.005 * 0.05);
}

TEST(Initialize, StandardDeviationIsConfigured) {
  Config config = wide_config();
  config.model.init_std = 0.3;
  const Fresh fresh(config);
  EXPECT_NEAR(rms(fresh.weight("embedding.weight")), 0.3, 0.3 * 0.03);
  EXPECT_NEAR(rms(fresh.weight("blocks.3.attn.gate")), 0.3, 0.3 * 0.1);
  EXPECT_NEAR(rms(fresh.weight("blocks.0.mlp.down")), 0.3 / 4, 0.075 * 0.05);
}

TEST(Initialize, NormsAreOneAndBiasesZero) {
  Config config = small_config();
  config.model.qk_norm = true;
  const Fresh fresh(config);
  EXPECT_EQ(fresh.weight("blocks.0.attn_norm.weight"), std::vector<double>(16, 1.0));
  EXPECT_EQ(fresh.weight("head.norm.weight"), std::vector<double>(16, 1.0));
  EXPECT_EQ(fresh.weight("blocks.0.attn.q_norm"), std::vector<double>(8, 1.0));
  EXPECT_EQ(fresh.weight("blocks.0.attn.gate_bias"), std::vector<double>(12, 0.0));
}

TEST(Initialize, PoolMlpStartsAsMeanPooling) {
  const Fresh fresh(small_config());
  EXPECT_EQ(fresh.weight("blocks.0.attn.phi_k.theta"), std::vector<double>(16, 0.0));
  EXPECT_EQ(fresh.weight("blocks.0.attn.phi_k.w2"), std::vector<double>(64, 0.0));
  EXPECT_NEAR(rms(fresh.weight("blocks.0.attn.phi_k.w1")), std::sqrt(1.0 / 8), 0.12);
}

TEST(Initialize, CompressorsWithoutAResidualStartWithASignal) {
  Config config = small_config();
  for (const Phi phi : {Phi::kMeanMlp, Phi::kMlpFlat}) {
    config.attention.compress.phi = phi;
    const Fresh fresh(config);
    EXPECT_NEAR(rms(fresh.weight("blocks.0.attn.phi_v.w2")), std::sqrt(1.0 / 8), 0.12);
  }
}

TEST(Initialize, FlatCompressorScalesByItsWholeInput) {
  Config config = small_config();
  config.attention.compress.phi = Phi::kMlpFlat;
  EXPECT_NEAR(rms(Fresh(config).weight("blocks.0.attn.phi_k.w1")), std::sqrt(1.0 / 32), 0.03);
}

TEST(Initialize, AWeightDependsOnItsNameAndTheSeedAlone) {
  Config deeper = small_config();
  deeper.model.layers = 2;
  deeper.attention.dense_layers = {0};
  deeper.model.tie_embeddings = false;
  const Fresh one(small_config());
  const Fresh two(deeper);
  EXPECT_EQ(one.weight("blocks.1.attn.q"), two.weight("blocks.1.attn.q"));
  EXPECT_EQ(one.weight("blocks.1.mlp.up"), two.weight("blocks.1.mlp.up"));
  EXPECT_NE(one.weight("blocks.1.attn.q"), one.weight("blocks.0.attn.q"));
}

TEST(Initialize, AnotherSeedGivesOtherWeights) {
  EXPECT_NE(Fresh(small_config(), 1).weight("embedding.weight"),
            Fresh(small_config(), 2).weight("embedding.weight"));
}

TEST(Initialize, SinglePrecisionIsTheRoundedDouble) {
  const Fresh rounded(small_config(), 1, DType::kF32);
  std::vector<double> wanted = Fresh(small_config()).weight("blocks.0.mlp.gate");
  for (double& value : wanted) value = static_cast<double>(static_cast<float>(value));
  EXPECT_EQ(rounded.weight("blocks.0.mlp.gate"), wanted);
}

// Large enough that several workers share one parameter.
TEST(Initialize, TheNumberOfThreadsChangesNothing) {
  Config config = small_config();
  config.model.vocab_size = 5000;
  ASSERT_EQ(setenv("OMP_NUM_THREADS", "1", 1), 0);
  const Fresh one(config);
  ASSERT_EQ(setenv("OMP_NUM_THREADS", "3", 1), 0);
  const Fresh three(config);
  ASSERT_EQ(unsetenv("OMP_NUM_THREADS"), 0);
  EXPECT_EQ(values_of(one.store.weights()), values_of(three.store.weights()));
}

TEST(Initialize, PaddingStaysZero) {
  Config config = small_config();
  config.model.hidden = 17;
  const Fresh fresh(config);
  const Layout& layout = fresh.store.layout();
  const double* weights = fresh.store.weights().as<double>();
  std::int64_t reached = 0;
  for (const Parameter& parameter : layout.parameters()) {
    for (; reached < layout.begin(parameter); ++reached) ASSERT_EQ(weights[reached], 0.0);
    reached += parameter.size();
  }
  for (; reached < layout.size(); ++reached) ASSERT_EQ(weights[reached], 0.0);
}

}  // namespace
}  // namespace nsa
