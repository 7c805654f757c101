#include "model/nsa_attention.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/safetensors.h"
#include "model/sublayer.h"

namespace nsa {
namespace {

using test::OwnedBatch;
using test::relative_error;
using test::small_config;
using test::SmallModel;
using test::Sublayer;

// The golden layer was computed in float64 by another program, then rounded to fp32.
constexpr double kGoldenTolerance = 1e-6;

/// The configuration of tests/golden/layer_full.safetensors.
Config golden_config() {
  Config config = small_config();
  config.model.layers = 1;
  config.model.hidden = 20;
  config.model.head_dim = 16;
  config.model.v_head_dim = 8;
  config.model.rope_dim = 16;
  config.attention.compress.rate = 4;
  config.attention.compress.hidden_key = 12;
  config.attention.compress.hidden_value = 12;
  config.attention.compress.bins = 32;
  config.attention.select = {.block = 8, .top_n = 4, .initial = 1, .local = 2};
  config.attention.window = 12;
  return config;
}

/// Pairs of (our parameter, the golden file's).
std::vector<std::pair<std::string, std::string>> golden_names() {
  std::vector<std::pair<std::string, std::string>> names = {
      {"q", "w_q"}, {"gate", "w_g"}, {"gate_bias", "b_g"}, {"out", "w_o"}};
  for (const std::string pair : {"cmp", "slc", "win"}) {
    names.emplace_back("k_" + pair, "w_k_" + pair);
    names.emplace_back("v_" + pair, "w_v_" + pair);
  }
  for (const std::string phi : {"phi_k", "phi_v"}) {
    for (const std::string part : {".theta", ".w1", ".b1", ".w2"}) {
      names.emplace_back(phi + part, phi + part);
    }
  }
  return names;
}

class GoldenLayer : public testing::TestWithParam<Keep> {
 protected:
  GoldenLayer() {
    for (const auto& [ours, theirs] : golden_names()) {
      Sublayer::fill(layer_.store().weight("blocks.0.attn." + ours),
                     golden_.values("in." + theirs));
    }
    layer_.store().zero_gradients();
    Sublayer::fill(layer_.block().attention.normed, golden_.values("in.x"));
    attention_.forward(layer_.step(), layer_.weights().attention, layer_.block().attention,
                       layer_.activations().delta);
  }

  Safetensors golden_{std::string(NSA_SOURCE_DIR) + "/tests/golden/layer_full.safetensors"};
  Config config_ = golden_config();
  Sublayer layer_{config_, {45, 18, 1}, GetParam()};
  NsaAttention attention_{config_};
};

TEST_P(GoldenLayer, ForwardAgrees) {
  const std::vector<double> y = Sublayer::values(layer_.activations().delta);
  EXPECT_LE(relative_error(y, golden_.values("out.y")), kGoldenTolerance);
}

TEST_P(GoldenLayer, SelectsTheSameBlocks) {
  EXPECT_EQ(Sublayer::values(layer_.block().attention.blocks), golden_.values("mid.sel_idx"));
}

TEST_P(GoldenLayer, BackwardAgreesForTheInputAndEveryWeight) {
  Sublayer::fill(layer_.activations().dresidual, golden_.values("in.d_y"));
  if (GetParam() == Keep::kExpensive) {
    attention_.rebuild(layer_.step(), layer_.weights().attention, layer_.block().attention);
  }
  attention_.backward(layer_.step(), layer_.weights().attention, layer_.gradients().attention,
                      layer_.block().attention, layer_.activations());
  const std::vector<double> dx = Sublayer::values(layer_.activations().dnormed);
  EXPECT_LE(relative_error(dx, golden_.values("grad.x")), kGoldenTolerance);
  for (const auto& [ours, theirs] : golden_names()) {
    const Tensor gradient = layer_.store().gradient("blocks.0.attn." + ours);
    EXPECT_LE(relative_error(Sublayer::values(gradient), golden_.values("grad." + theirs)),
              kGoldenTolerance)
        << ours;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, GoldenLayer,
                         testing::Values(Keep::kEverything, Keep::kExpensive, Keep::kInput),
                         [](const auto& keep) {
                           return "Keep" + std::to_string(static_cast<int>(keep.param));
                         });

// One branch that sees every token, with its gate wide open, is dense attention.

enum class FullBranch { kCompressedAtRateOne, kSelectedWithRoomForAll, kWindowOverAll };

class OneFullBranch : public testing::TestWithParam<FullBranch> {
 protected:
  static Config dense_config() {
    Config config = small_config();
    config.attention.kind = AttentionKind::kDense;
    return config;
  }
  static Config nsa_config() {
    Config config = small_config();
    AttentionConfig& attention = config.attention;
    attention.compressed = GetParam() == FullBranch::kCompressedAtRateOne;
    attention.selected = GetParam() == FullBranch::kSelectedWithRoomForAll;
    attention.window_branch = GetParam() == FullBranch::kWindowOverAll;
    if (attention.compressed) attention.compress.rate = 1;
    attention.select.top_n = 8;
    attention.window = 32;
    return config;
  }
  static std::string suffix() {
    switch (GetParam()) {
      case FullBranch::kCompressedAtRateOne:
        return "_cmp";
      case FullBranch::kSelectedWithRoomForAll:
        return "_slc";
      case FullBranch::kWindowOverAll:
        return "_win";
    }
    return "";
  }

  OneFullBranch() {
    const Layout& layout = dense_.layout();
    for (const Parameter& parameter : layout.parameters()) {
      copy(dense_.store().weight(parameter.name), nsa_.store().weight(name_in_nsa(parameter.name)));
    }
    for (const std::string block : {"blocks.0.attn.", "blocks.1.attn."}) {
      const Tensor gate = nsa_.store().weight(block + "gate");
      const Tensor bias = nsa_.store().weight(block + "gate_bias");
      Sublayer::fill(gate, std::vector<double>(static_cast<std::size_t>(gate.size()), 0.0));
      // sigmoid(40) is 1 in double.
      Sublayer::fill(bias, std::vector<double>(static_cast<std::size_t>(bias.size()), 40.0));
    }
  }
  static std::string name_in_nsa(const std::string& name) {
    const bool pair = name.size() > 7 && name.rfind("blocks.", 0) == 0 &&
                      (name.ends_with("attn.k") || name.ends_with("attn.v"));
    return pair ? name + suffix() : name;
  }
  static void copy(const Tensor& from, const Tensor& to) {
    Sublayer::fill(to, Sublayer::values(from));
  }

  SmallModel dense_{dense_config()};
  SmallModel nsa_{nsa_config()};
  OwnedBatch batch_{{21, 8}, 13};
};

TEST_P(OneFullBranch, HasTheLossesOfDenseAttention) {
  EXPECT_LE(relative_error(nsa_.token_losses(batch_), dense_.token_losses(batch_)), 1e-13);
}

TEST_P(OneFullBranch, HasTheGradientsOfDenseAttention) {
  dense_.train(batch_);
  nsa_.train(batch_);
  for (const Parameter& parameter : dense_.layout().parameters()) {
    EXPECT_LE(
        relative_error(nsa_.gradient(name_in_nsa(parameter.name)), dense_.gradient(parameter.name)),
        1e-12)
        << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Branches, OneFullBranch,
                         testing::Values(FullBranch::kCompressedAtRateOne,
                                         FullBranch::kSelectedWithRoomForAll,
                                         FullBranch::kWindowOverAll),
                         [](const auto& branch) {
                           return "Branch" + std::to_string(static_cast<int>(branch.param));
                         });

}  // namespace
}  // namespace nsa
