#include "model/weights.h"

#include <gtest/gtest.h>

#include "model/small_model.h"

namespace nsa {
namespace {

using test::small_config;
using test::SmallModel;

TEST(BlockParameters, AreTheStoresOwnMemory) {
  SmallModel model(small_config());
  const BlockParameters block = block_parameters(model.store(), 1);
  EXPECT_EQ(block.weights.mlp.down.data(), model.store().weight("blocks.1.mlp.down").data());
  EXPECT_EQ(block.gradients.mlp.down.data(), model.store().gradient("blocks.1.mlp.down").data());
  EXPECT_EQ(block.weights.attention.phi_v.w2.data(),
            model.store().weight("blocks.1.attn.phi_v.w2").data());
}

TEST(BlockParameters, ProjectionSpansQueriesToGates) {
  SmallModel model(small_config());
  const Tensor projection = block_parameters(model.store(), 0).weights.attention.projection;
  EXPECT_TRUE(projection.has_shape({4 * 8 + 6 * 2 * 8 + 12, 16}));
  EXPECT_EQ(projection.data(), model.store().weight("blocks.0.attn.q").data());
}

TEST(BlockParameters, ADenseLayerHasNeitherGateNorCompressor) {
  Config config = small_config();
  config.attention.dense_layers = {0};
  SmallModel model(config);
  const AttentionWeights dense = block_parameters(model.store(), 0).weights.attention;
  EXPECT_TRUE(dense.projection.has_shape({4 * 8 + 2 * 2 * 8, 16}));
  EXPECT_FALSE(dense.gate_bias.defined());
  EXPECT_FALSE(dense.phi_k.w1.defined());
  EXPECT_FALSE(dense.q_norm.defined());
}

TEST(HeadParameters, TiedHeadIsTheEmbedding) {
  SmallModel model(small_config());
  const HeadParameters head = head_parameters(model.store());
  EXPECT_EQ(head.weights.head.data(), head.weights.embedding.data());
  EXPECT_EQ(head.gradients.head.data(), head.gradients.embedding.data());
}

TEST(HeadParameters, UntiedHeadIsItsOwnMatrix) {
  Config config = small_config();
  config.model.tie_embeddings = false;
  SmallModel model(config);
  const HeadParameters head = head_parameters(model.store());
  EXPECT_EQ(head.weights.head.data(), model.store().weight("head.weight").data());
  EXPECT_NE(head.gradients.head.data(), head.gradients.embedding.data());
}

}  // namespace
}  // namespace nsa
