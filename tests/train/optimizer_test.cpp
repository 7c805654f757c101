#include "train/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "train/stored_model.h"

namespace nsa {
namespace {

using test::StoredModel;

class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() {
    model_.scramble(3);
    for (std::int64_t i = 0; i < model_.store.gradients().size(); ++i) gradient()[i] = 0;
    for (const Parameter& parameter : layout().parameters()) {
      for (std::int64_t i = 0; i < parameter.size(); ++i) {
        gradient()[layout().begin(parameter) + i] = 0.5F;
      }
    }
  }

  const Layout& layout() const { return model_.store.layout(); }
  float* gradient() { return model_.store.gradients().as<float>(); }
  static StepPlan plan_at_rate(std::int32_t rate) {
    StepPlan plan;
    plan.learning_rate = 0.25;
    plan.seq_len = 32;
    plan.geometry.rate = rate;
    return plan;
  }
  /// Updates once at `rate` and tells, parameter by parameter, whether anything of it moved.
  std::vector<bool> moved_at_rate(std::int32_t rate) {
    Optimizer optimizer({}, model_.store, model_.backend);
    const std::vector<float> before = StoredModel::copy(model_.store.master());
    const std::vector<float> m_before = StoredModel::copy(model_.store.m());
    optimizer.gradient_norm(1.0);
    optimizer.update(plan_at_rate(rate), 1.0);
    const std::vector<float> after = StoredModel::copy(model_.store.master());
    const std::vector<float> m_after = StoredModel::copy(model_.store.m());
    std::vector<bool> moved;
    for (const Parameter& parameter : layout().parameters()) {
      bool any = false;
      const auto begin = static_cast<std::size_t>(layout().begin(parameter));
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(parameter.size()); ++i) {
        any = any || after[i] != before[i] || m_after[i] != m_before[i];
      }
      moved.push_back(any);
    }
    return moved;
  }

  StoredModel model_;
};

TEST_F(OptimizerTest, TheNormIsThatOfAllGradients) {
  Optimizer optimizer({}, model_.store, model_.backend);
  const auto elements = static_cast<double>(layout().parameter_count());
  EXPECT_NEAR(optimizer.gradient_norm(3.0), 3.0 * std::sqrt(elements * 0.25), 1e-9);
}

TEST_F(OptimizerTest, OneBadGradientMakesTheNormNonFinite) {
  Optimizer optimizer({}, model_.store, model_.backend);
  gradient()[layout().begin(layout().parameters().back())] = std::nanf("");
  EXPECT_FALSE(std::isfinite(optimizer.gradient_norm(1.0)));
}

TEST_F(OptimizerTest, WhatTheStageDoesNotTrainIsLeftAlone) {
  const std::vector<std::int64_t> before = model_.store.updates();
  const std::vector<bool> moved = moved_at_rate(1);  // phi has no gradient under the bypass
  bool any_phi = false;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const Parameter& parameter = layout().parameters()[i];
    const bool trained = layout().is_trained(parameter, 1, 32);
    EXPECT_EQ(moved[i], trained) << parameter.name;
    EXPECT_EQ(model_.store.updates()[i], before[i] + (trained ? 1 : 0)) << parameter.name;
    any_phi = any_phi || !trained;
  }
  EXPECT_TRUE(any_phi);
}

TEST_F(OptimizerTest, EverythingMovesAtARateThatCompresses) {
  for (const bool moved : moved_at_rate(2)) EXPECT_TRUE(moved);
}

TEST_F(OptimizerTest, ANonFiniteNormTouchesNothing) {
  Optimizer optimizer({}, model_.store, model_.backend);
  gradient()[layout().begin(layout().parameters().back())] = std::nanf("");
  const std::vector<float> before = StoredModel::copy(model_.store.master());
  optimizer.gradient_norm(1.0);
  optimizer.update(plan_at_rate(2), 1.0);
  EXPECT_EQ(StoredModel::copy(model_.store.master()), before);
}

}  // namespace
}  // namespace nsa
