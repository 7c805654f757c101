// memory.recompute changes memory, never a bit of the result.

#include <functional>

#include <gtest/gtest.h>

#include "model/small_model.h"

namespace nsa {
namespace {

using test::OwnedBatch;
using test::small_config;
using test::SmallModel;

struct Case {
  std::string name;
  std::function<void(Config&)> change;
};

/// What one micro-step yields.
struct Result {
  LossSums loss;
  std::vector<double> gradients;
};

Result run(Config config, Recompute recompute, DType dtype) {
  config.memory.recompute = recompute;
  SmallModel model(config, dtype, 2);
  model.train(OwnedBatch({17, 1, 22}, config.model.vocab_size), 0.125);
  return {.loss = model.transformer().take_loss_sums(), .gradients = model.gradients()};
}

class RecomputeTest : public testing::TestWithParam<Case> {};

TEST_P(RecomputeTest, AllSettingsAgreeBitForBit) {
  Config config = small_config();
  GetParam().change(config);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Result none = run(config, Recompute::kNone, dtype);
    for (const Recompute setting : {Recompute::kSelective, Recompute::kFull}) {
      const Result other = run(config, setting, dtype);
      EXPECT_EQ(other.loss.cross_entropy, none.loss.cross_entropy);
      EXPECT_EQ(other.loss.z_loss, none.loss.z_loss);
      EXPECT_TRUE(other.gradients == none.gradients) << name_of(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RecomputeTest,
    testing::Values(Case{"Nsa", [](Config& c) { c.optim.z_loss = 1e-3; }},
                    Case{"Dense", [](Config& c) { c.attention.kind = AttentionKind::kDense; }},
                    Case{"NsaBeforeDense", [](Config& c) { c.attention.dense_layers = {1}; }},
                    Case{"QkNormMixed",
                         [](Config& c) {
                           c.model.qk_norm = true;
                           c.attention.dense_layers = {0};
                         }},
                    Case{"SharedKv", [](Config& c) { c.attention.share_kv = true; }},
                    Case{"OnlyScoring", [](Config& c) { c.attention.compressed = false; }},
                    Case{"NoSelection", [](Config& c) { c.attention.selected = false; }},
                    Case{"RateOne", [](Config& c) { c.attention.compress.rate = 1; }},
                    Case{"NarrowValues",
                         [](Config& c) {
                           c.model.v_head_dim = 4;
                           c.attention.compress.phi = Phi::kMlpFlat;
                         }}),
    [](const auto& tested) { return tested.param.name; });

std::int64_t activation_bytes(Recompute recompute) {
  Config config = small_config();
  config.model.layers = 6;
  config.memory.recompute = recompute;
  return SmallModel(config).transformer().activation_bytes();
}

TEST(Recompute, EachSettingTakesLessMemoryThanTheOneBefore) {
  EXPECT_LT(activation_bytes(Recompute::kSelective), activation_bytes(Recompute::kNone) * 9 / 10);
  EXPECT_LT(activation_bytes(Recompute::kFull), activation_bytes(Recompute::kSelective) / 2);
}

}  // namespace
}  // namespace nsa
