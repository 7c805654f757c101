#include "model/transformer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/small_model.h"
#include "model/sublayer.h"

namespace nsa {
namespace {

using test::OwnedBatch;
using test::relative_error;
using test::small_config;
using test::SmallModel;

constexpr std::int64_t kVocabulary = 13;

TEST(Transformer, TrainAndEvaluateSeeTheSameLoss) {
  Config config = small_config();
  config.optim.z_loss = 1e-2;
  SmallModel model(config, DType::kF32);
  const OwnedBatch batch({30, 10}, kVocabulary);
  model.train(batch, 0.25);
  const LossSums trained = model.transformer().take_loss_sums();
  model.transformer().evaluate(batch, model.geometry());
  const LossSums evaluated = model.transformer().take_loss_sums();
  EXPECT_GT(trained.z_loss, 0);
  EXPECT_EQ(trained.cross_entropy, evaluated.cross_entropy);
  EXPECT_EQ(trained.z_loss, evaluated.z_loss);
}

TEST(Transformer, LossSumsAddUpUntilTheyAreTaken) {
  SmallModel model(small_config());
  const OwnedBatch batch({20}, kVocabulary);
  const double once = model.loss(batch);
  model.transformer().evaluate(batch, model.geometry());
  model.transformer().evaluate(batch, model.geometry());
  EXPECT_NEAR(model.transformer().take_loss_sums().cross_entropy, 2 * once, 1e-12 * once);
  EXPECT_EQ(model.transformer().take_loss_sums().cross_entropy, 0);
}

TEST(Transformer, TokenLossesSumToTheLossAndAreZeroWithoutATarget) {
  SmallModel model(small_config());
  const OwnedBatch batch({20}, kVocabulary);
  const double sum = model.loss(batch);
  double total = 0;
  const std::vector<double> losses = model.token_losses(batch);
  for (std::size_t row = 0; row < losses.size(); ++row) {
    total += losses[row];
    const bool ignored = batch.targets().get(static_cast<std::int64_t>(row)) == kIgnoredTarget;
    EXPECT_EQ(losses[row] == 0, ignored) << row;
  }
  EXPECT_NEAR(total, sum, 1e-12 * sum);
}

TEST(Transformer, LogitsGiveTheLossOfTheirRow) {
  for (const bool tied : {true, false}) {
    Config config = small_config();
    config.model.tie_embeddings = tied;
    SmallModel model(config);
    const OwnedBatch batch({20, 9}, kVocabulary);
    const std::vector<double> losses = model.token_losses(batch);
    for (const std::int64_t row : {0, 19, 28}) {
      const std::vector<double> logits =
          SmallModel::values_of(model.transformer().logits(batch, model.geometry(), row));
      ASSERT_EQ(logits.size(), static_cast<std::size_t>(kVocabulary));
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      const auto target = static_cast<std::size_t>(batch.targets().get(row));
      EXPECT_NEAR(std::log(sum) - logits.at(target), losses[static_cast<std::size_t>(row)], 1e-12);
    }
  }
}

TEST(Transformer, OneForwardGivesTheLogitsOfEveryRow) {
  SmallModel model(small_config());
  const OwnedBatch batch({20, 9}, kVocabulary);
  std::vector<std::vector<double>> alone;
  for (const std::int64_t row : {0, 19, 28}) {
    alone.push_back(
        SmallModel::values_of(model.transformer().logits(batch, model.geometry(), row)));
  }
  model.transformer().evaluate(batch, model.geometry());
  EXPECT_EQ(SmallModel::values_of(model.transformer().logits(28)), alone[2]);
  EXPECT_EQ(SmallModel::values_of(model.transformer().logits(0)), alone[0]);
  EXPECT_EQ(SmallModel::values_of(model.transformer().logits(19)), alone[1]);
}

TEST(Transformer, GradientsAddUpOverMicroBatches) {
  SmallModel model(small_config());
  const OwnedBatch whole({16, 16, 16}, kVocabulary);
  model.train(whole, 0.5);
  const double loss = model.transformer().take_loss_sums().cross_entropy;
  const std::vector<double> gradients = model.gradients();
  model.store().zero_gradients();
  for (const std::int64_t begin : {0, 16, 32}) {
    OwnedBatch part({16}, kVocabulary);
    part.copy_rows(whole, begin, 16, 0);
    model.train(part, 0.5);
  }
  EXPECT_LE(relative_error(model.gradients(), gradients), 1e-13);
  EXPECT_NEAR(model.transformer().take_loss_sums().cross_entropy, loss, 1e-12 * loss);
}

TEST(Transformer, GradScaleScalesTheGradient) {
  SmallModel model(small_config());
  const OwnedBatch batch({24}, kVocabulary);
  model.train(batch, 1);
  std::vector<double> wanted = model.gradients();
  for (double& value : wanted) value *= 0.125;
  model.store().zero_gradients();
  model.train(batch, 0.125);
  EXPECT_LE(relative_error(model.gradients(), wanted), 1e-14);
}

TEST(Transformer, TheNumberOfThreadsChangesNothing) {
  const OwnedBatch batch({40, 3, 21}, kVocabulary);
  SmallModel one(small_config(), DType::kF32, 1);
  SmallModel three(small_config(), DType::kF32, 3);
  one.train(batch);
  three.train(batch);
  EXPECT_TRUE(one.gradients() == three.gradients());
}

TEST(Transformer, NothingIsAllocatedAfterTheFirstMicroStep) {
  for (const Recompute setting : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Config config = small_config();
    config.memory.recompute = setting;
    config.attention.dense_layers = {1};
    SmallModel model(config, DType::kF32, 2);
    const OwnedBatch batch({40, 24}, kVocabulary);
    model.train(batch);
    const std::int64_t allocations = model.backend().device->allocations();
    model.train(batch);
    model.train(OwnedBatch({17}, kVocabulary));
    EXPECT_EQ(model.backend().device->allocations(), allocations);
  }
}

TEST(Transformer, PlansForTheLargestStage) {
  const Config config = small_config();
  Backend backend = make_backend("cpu", 1);
  ParameterStore store(Layout(config), backend, DType::kF32);
  store.initialize(3);
  const NsaGeometry every_token = nsa::geometry_of(config.attention, 1);
  const NsaGeometry coarse = nsa::geometry_of(config.attention, 2);
  Transformer both(config, store, backend,
                   {{.rows = 32, .longest = 32, .geometry = every_token},
                    {.rows = 48, .longest = 48, .geometry = coarse}});
  both.train_micro(OwnedBatch({32}, kVocabulary), every_token, 1);
  both.train_micro(OwnedBatch({48}, kVocabulary), coarse, 1);
  const Transformer second(config, store, backend,
                           {{.rows = 48, .longest = 48, .geometry = coarse}});
  EXPECT_GE(both.activation_bytes(), second.activation_bytes());
}

TEST(Transformer, RefusesMoreRowsThanPlanned) {
  SmallModel model(small_config());
  EXPECT_THROW(model.train(OwnedBatch({65}, kVocabulary)), Error);
}

TEST(Transformer, ReusedBlocksReplaceTheSelection) {
  SmallModel model(small_config());
  const OwnedBatch batch({40}, kVocabulary);
  const std::vector<double> chosen = model.token_losses(batch);
  const Tensor blocks = model.transformer().selected_blocks(0);
  const std::vector<double> selected = SmallModel::values_of(blocks);
  model.transformer().set_reuse_blocks(true);
  EXPECT_EQ(model.token_losses(batch), chosen);
  // The last query now attends to its own block alone.
  const Tensor last = blocks.slice(39, 40);
  for (std::int64_t i = 0; i < last.size(); ++i) {
    last.as<std::int32_t>()[i] = i % last.dim(2) == 0 ? 9 : -1;
  }
  EXPECT_NE(model.token_losses(batch).back(), chosen.back());
  model.transformer().set_reuse_blocks(false);
  EXPECT_EQ(model.token_losses(batch), chosen);
  EXPECT_EQ(SmallModel::values_of(model.transformer().selected_blocks(0)), selected);
}

TEST(Transformer, DenseLayersHaveNoSelectedBlocks) {
  Config config = small_config();
  config.attention.dense_layers = {0};
  SmallModel model(config);
  model.train(OwnedBatch({20}, kVocabulary));
  EXPECT_FALSE(model.transformer().selected_blocks(0).defined());
  EXPECT_TRUE(model.transformer().selected_blocks(1).defined());
}

/// The gradient of every parameter is zero exactly where the layout says that it is not trained.
void expect_untrained_zero(const Config& config, const std::vector<std::int64_t>& documents) {
  SmallModel model(config, DType::kF32);
  const OwnedBatch batch(documents, kVocabulary);
  model.train(batch);
  const std::int64_t rate = config.attention.compress.rate;
  for (const Parameter& parameter : model.layout().parameters()) {
    double largest = 0;
    for (const double value : model.gradient(parameter.name)) {
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_EQ(largest > 0, model.layout().is_trained(parameter, rate, batch.rows()))
        << parameter.name;
  }
}

TEST(UntrainedParameters, AreAllOthersThanThoseWithAGradient) {
  expect_untrained_zero(small_config(), {30});
}

TEST(UntrainedParameters, AreTheCompressorsUnderTheBypass) {
  Config config = small_config();
  config.attention.compress.rate = 1;
  expect_untrained_zero(config, {30});
}

TEST(UntrainedParameters, AreThePoolingLogitsAtRateOneWithoutTheBypass) {
  Config config = small_config();
  config.attention.compress.rate = 1;
  config.attention.compress.rate1_bypass = false;
  expect_untrained_zero(config, {30});
}

TEST(UntrainedParameters, AreTheKeysThatOnlyScore) {
  Config config = small_config();
  config.attention.compressed = false;
  expect_untrained_zero(config, {30});
}

TEST(UntrainedParameters, AreThoseOfACompressedBranchWithoutABlock) {
  expect_untrained_zero(small_config(), {3});
}

TEST(Transformer, LearnsASmallBatchByHeart) {
  const Config config = small_config();
  SmallModel model(config, DType::kF32, 1);
  model.store().initialize(1);
  const OwnedBatch batch({16, 16}, kVocabulary);
  const double before = model.loss(batch);
  for (int step = 0; step < 60; ++step) {
    model.store().zero_gradients();
    model.train(batch, 1.0 / 28);
    float* weights = model.store().weights().as<float>();
    const float* gradients = model.store().gradients().as<float>();
    for (std::int64_t i = 0; i < model.store().weights().size(); ++i) {
      weights[i] -= 0.5F * gradients[i];
    }
  }
  EXPECT_LT(model.loss(batch), 0.8 * before);
}

}  // namespace
}  // namespace nsa
