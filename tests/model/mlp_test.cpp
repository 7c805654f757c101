#include "model/mlp.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/sublayer.h"

namespace nsa {
namespace {

using test::relative_error;
using test::small_config;
using test::Sublayer;

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kFfn = 24;

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// down(silu(gate x) * up x), one element at a time.
std::vector<double> reference(Sublayer& layer) {
  const double* gate = layer.store().weight("blocks.0.mlp.gate").as<double>();
  const double* up = layer.store().weight("blocks.0.mlp.up").as<double>();
  const double* down = layer.store().weight("blocks.0.mlp.down").as<double>();
  std::vector<double> out;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const double* x = layer.block().mlp.normed.as<double>() + row * kHidden;
    std::vector<double> product;
    for (std::int64_t f = 0; f < kFfn; ++f) {
      const double z = dot(gate + f * kHidden, x, kHidden);
      product.push_back(z / (1 + std::exp(-z)) * dot(up + f * kHidden, x, kHidden));
    }
    for (std::int64_t c = 0; c < kHidden; ++c) {
      out.push_back(dot(down + c * kFfn, product.data(), kFfn));
    }
  }
  return out;
}

class MlpTest : public testing::Test {
 protected:
  MlpTest() {
    Sublayer::fill_normal(layer_.block().mlp.normed, 3);
    mlp_forward(layer_.step(), layer_.weights().mlp, layer_.block().mlp,
                layer_.activations().delta);
  }
  Sublayer layer_{small_config(), {kRows}, Keep::kEverything};
};

TEST_F(MlpTest, ForwardIsTheFormula) {
  EXPECT_LE(relative_error(Sublayer::values(layer_.activations().delta), reference(layer_)), 1e-13);
}

TEST_F(MlpTest, RebuildMakesTheSameProductAgain) {
  const std::vector<double> product = Sublayer::values(layer_.block().mlp.product);
  Sublayer::fill_normal(layer_.block().mlp.product, 9);
  mlp_rebuild(layer_.step(), layer_.block().mlp);
  EXPECT_EQ(Sublayer::values(layer_.block().mlp.product), product);
}

TEST_F(MlpTest, BackwardGivesTheGradientOfTheInput) {
  const Tensor x = layer_.block().mlp.normed;
  const Tensor dout = layer_.activations().dresidual;
  Sublayer::fill_normal(dout, 4);
  mlp_backward(layer_.step(), layer_.weights().mlp, layer_.gradients().mlp, layer_.block().mlp,
               layer_.activations());
  const std::vector<double> dx = Sublayer::values(layer_.activations().dnormed);
  constexpr double kStep = 1e-5;
  for (const std::int64_t i : {0, 17, 42, 79}) {
    double difference = 0;
    for (const double side : {1.0, -1.0}) {
      x.as<double>()[i] += side * kStep;
      const std::vector<double> out = reference(layer_);
      difference += side * dot(out.data(), dout.as<double>(), dout.size()) / (2 * kStep);
      x.as<double>()[i] -= side * kStep;
    }
    EXPECT_NEAR(dx[static_cast<std::size_t>(i)], difference, 1e-7);
  }
}

}  // namespace
}  // namespace nsa
