#include "model/block.h"

#include <gtest/gtest.h>

#include "model/sublayer.h"

namespace nsa {
namespace {

using test::small_config;
using test::Sublayer;

/// A block whose sublayers add nothing: what reaches the residual stream is zero.
class SilentBlock : public testing::TestWithParam<bool> {
 protected:
  static Config config() {
    Config config = small_config();
    if (GetParam()) config.attention.dense_layers = {0};
    return config;
  }
  SilentBlock() {
    for (const char* name : {"blocks.0.attn.out", "blocks.0.mlp.down"}) {
      const Tensor weight = layer_.store().weight(name);
      Sublayer::fill(weight, std::vector<double>(static_cast<std::size_t>(weight.size()), 0.0));
    }
    Sublayer::fill_normal(layer_.activations().head.residual, 11);  // serves as the stream
    Sublayer::fill_normal(layer_.activations().delta, 12);
    for (std::int64_t i = 0; i < layer_.activations().delta.size(); ++i) {
      sum_.push_back(layer_.activations().head.residual.as<double>()[i] +
                     layer_.activations().delta.as<double>()[i]);
    }
  }
  Stream run() {
    return block_.forward(
        layer_.step(),
        {.residual = layer_.activations().head.residual, .delta = layer_.activations().delta},
        layer_.block(), layer_.activations());
  }

  Sublayer layer_{config(), {9, 4}, Keep::kEverything};
  Block block_{config(), 0, layer_.parameters()};
  std::vector<double> sum_;
};

TEST_P(SilentBlock, PassesTheStreamOn) {
  const Stream out = run();
  EXPECT_EQ(Sublayer::values(out.residual), sum_);
  EXPECT_EQ(Sublayer::values(out.delta), std::vector<double>(sum_.size(), 0.0));
}

TEST_P(SilentBlock, PassesTheGradientOn) {
  run();
  Sublayer::fill_normal(layer_.activations().dresidual, 13);
  const std::vector<double> before = Sublayer::values(layer_.activations().dresidual);
  block_.backward(layer_.step(), Keep::kEverything, layer_.block(), layer_.activations());
  EXPECT_EQ(Sublayer::values(layer_.activations().dresidual), before);
}

TEST_P(SilentBlock, KnowsItsKind) {
  EXPECT_EQ(block_.is_dense(), GetParam());
}

TEST_P(SilentBlock, TakesAStreamWithoutADeltaAsItIs) {
  Sublayer::fill_normal(layer_.block().residual_in, 14);
  const std::vector<double> entering = Sublayer::values(layer_.block().residual_in);
  const Stream out =
      block_.forward(layer_.step(), {.residual = layer_.block().residual_in, .delta = {}},
                     layer_.block(), layer_.activations());
  EXPECT_EQ(Sublayer::values(out.residual), entering);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SilentBlock, testing::Bool(),
                         [](const auto& dense) { return dense.param ? "Dense" : "Nsa"; });

}  // namespace
}  // namespace nsa
