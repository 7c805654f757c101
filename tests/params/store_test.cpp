#include "params/store.h"

#include <gtest/gtest.h>

#include "support/model_config.h"

namespace nsa {
namespace {

using test::small_config;

class ParameterStoreTest : public testing::Test {
 protected:
  Backend backend_ = make_backend("cpu", 1);
  Layout layout_{small_config()};
  ParameterStore store_{layout_, backend_, DType::kF64};
};

TEST_F(ParameterStoreTest, StartsAtZero) {
  for (const Tensor& flat : {store_.weights(), store_.gradients(), store_.m(), store_.v()}) {
    ASSERT_EQ(flat.dim(0), layout_.size());
    for (std::int64_t i = 0; i < flat.size(); ++i) ASSERT_EQ(flat.as<double>()[i], 0.0);
  }
  EXPECT_EQ(store_.updates(), std::vector<std::int64_t>(layout_.parameters().size(), 0));
}

TEST_F(ParameterStoreTest, WeightsAndMasterAreOneBufferWhenTheTypesAgree) {
  EXPECT_EQ(store_.weights().data(), store_.master().data());
}

TEST_F(ParameterStoreTest, ViewsStandWhereTheLayoutSays) {
  const Parameter& parameter = layout_.find("blocks.1.mlp.down");
  const Tensor weight = store_.weight(parameter.name);
  EXPECT_TRUE(weight.has_shape({16, 24}));
  EXPECT_EQ(weight.as<double>(), store_.weights().as<double>() + layout_.begin(parameter));
  EXPECT_EQ(store_.gradient(parameter.name).as<double>(),
            store_.gradients().as<double>() + layout_.begin(parameter));
}

TEST_F(ParameterStoreTest, FusedProjectionHoldsItsPartsInOrder) {
  const Tensor fused = store_.fused_weight("blocks.0.attn.q", "blocks.0.attn.gate");
  ASSERT_TRUE(fused.has_shape({4 * 8 + 6 * 2 * 8 + 3 * 4, 16}));
  std::int64_t row = 0;
  for (const char* name : {"q", "k_cmp", "v_cmp", "k_slc", "v_slc", "k_win", "v_win", "gate"}) {
    const Tensor part = store_.weight(std::string("blocks.0.attn.") + name);
    EXPECT_EQ(part.as<double>(), fused.as<double>() + row * 16) << name;
    row += part.dim(0);
  }
  EXPECT_EQ(row, fused.dim(0));
}

TEST_F(ParameterStoreTest, FusedGradientHoldsGateAndUp) {
  const Tensor fused = store_.fused_gradient("blocks.0.mlp.gate", "blocks.0.mlp.up");
  ASSERT_TRUE(fused.has_shape({48, 16}));
  EXPECT_EQ(store_.gradient("blocks.0.mlp.up").as<double>(), fused.slice(24, 25).as<double>());
}

TEST_F(ParameterStoreTest, FusedViewRefusesUnequalColumns) {
  EXPECT_THROW(store_.fused_weight("blocks.0.mlp.gate", "blocks.0.mlp.down"), Error);
}

TEST_F(ParameterStoreTest, FusedViewRefusesAWrongOrder) {
  EXPECT_THROW(store_.fused_weight("blocks.0.mlp.up", "blocks.0.mlp.gate"), Error);
}

TEST_F(ParameterStoreTest, ZeroGradientsClearsAllOfThem) {
  store_.gradient("head.norm.weight").as<double>()[3] = 7;
  store_.gradient("embedding.weight").as<double>()[0] = 7;
  store_.zero_gradients();
  EXPECT_EQ(store_.gradient("head.norm.weight").as<double>()[3], 0.0);
  EXPECT_EQ(store_.gradient("embedding.weight").as<double>()[0], 0.0);
}

TEST_F(ParameterStoreTest, PublishShowsTheModelWhatWasLoaded) {
  store_.master().as<double>()[5] = 1.5;
  store_.publish();
  EXPECT_EQ(store_.weights().as<double>()[5], 1.5);
}

}  // namespace
}  // namespace nsa
