#include "train/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/log.h"

namespace nsa {
namespace {

StageConfig stage_from(StepsOrTokens from, std::int64_t seq_len, std::int64_t rate,
                       std::int64_t tokens_per_step) {
  return {.from = from,
          .seq_len = seq_len,
          .rate = rate,
          .tokens_per_step = tokens_per_step,
          .micro_batch = std::nullopt,
          .rewarm = 0};
}

/// `steps` steps of one stage: 8 sequences of 64 tokens, peak 1, no warm-up, constant.
Config plain(std::int64_t steps) {
  Config config;
  config.train.steps = steps;
  config.optim.lr = 1;
  config.schedule.lr = {.kind = LrKind::kConstant, .warmup = {}, .min_ratio = 0.1};
  config.schedule.stages = {stage_from({}, 64, 16, 512)};
  return config;
}

Config shaped(std::int64_t steps, LrKind kind, std::int64_t warmup) {
  Config config = plain(steps);
  config.schedule.lr.kind = kind;
  config.schedule.lr.warmup = {warmup, false};
  return config;
}

/// 100 steps: 64 tokens at rate 4 from 0, 128 at rate 8 from step 40, 256 at rate 16 from 70.
Config staged() {
  Config config = plain(100);
  config.schedule.stages = {stage_from({}, 64, 4, 512), stage_from({40, false}, 128, 8, 512),
                            stage_from({70, false}, 256, 16, 1024)};
  return config;
}

TEST(Schedule, TheFirstWarmUpStepIsNotZero) {
  const Schedule schedule(shaped(100, LrKind::kCosine, 10), 0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(4), 0.5);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(9), 1.0);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const Schedule schedule(shaped(100, LrKind::kConstant, 10), 0);
  EXPECT_EQ(schedule.learning_rate(10), 1.0);
  EXPECT_EQ(schedule.learning_rate(99), 1.0);
}

TEST(Schedule, LinearFallsEvenly) {
  const Schedule schedule(shaped(21, LrKind::kLinear, 1), 0);
  EXPECT_EQ(schedule.learning_rate(0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(10), 0.55);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(5), 0.775);
}

TEST(Schedule, CosineIsHalfwayInTheMiddle) {
  const Schedule schedule(shaped(21, LrKind::kCosine, 1), 0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(10), 0.55);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(5), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2);
}

TEST(Schedule, WithoutWarmUpBeginsAtThePeak) {
  for (const LrKind kind : {LrKind::kConstant, LrKind::kLinear, LrKind::kCosine, LrKind::kWsd}) {
    EXPECT_EQ(Schedule(shaped(50, kind, 0), 0).learning_rate(0), 1.0);
  }
}

TEST(Schedule, TheLastStepHasExactlyTheSmallestRate) {
  for (const LrKind kind : {LrKind::kLinear, LrKind::kCosine, LrKind::kWsd}) {
    for (const DecayShape shape : {DecayShape::kLinear, DecayShape::kSqrt, DecayShape::kCosine}) {
      Config config = shaped(50, kind, 5);
      config.schedule.lr.shape = shape;
      EXPECT_EQ(Schedule(config, 0).learning_rate(49), 0.1);
    }
  }
}

TEST(Schedule, WsdDecaysInItsTailAlone) {
  const Schedule schedule(shaped(100, LrKind::kWsd, 10), 0);
  EXPECT_EQ(schedule.learning_rate(79), 1.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(80), 1 - 0.9 / 20);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(89), 0.55);
}

TEST(Schedule, WsdTailsHaveTheirShapes) {
  Config config = shaped(100, LrKind::kWsd, 10);
  config.schedule.lr.shape = DecayShape::kSqrt;
  EXPECT_DOUBLE_EQ(Schedule(config, 0).learning_rate(84), 0.1 + 0.9 * (1 - 0.5));
  config.schedule.lr.shape = DecayShape::kCosine;
  EXPECT_DOUBLE_EQ(Schedule(config, 0).learning_rate(89), 0.55);
}

TEST(Schedule, WsdDecaysAfterAWarmUpThatReachesIntoItsTail) {
  const Schedule schedule(shaped(100, LrKind::kWsd, 90), 0);
  EXPECT_EQ(schedule.learning_rate(89), 1.0);
  EXPECT_LT(schedule.learning_rate(90), 1.0);
}

TEST(Schedule, TheRateHasNoJump) {
  for (const LrKind kind : {LrKind::kConstant, LrKind::kLinear, LrKind::kCosine, LrKind::kWsd}) {
    const Schedule schedule(shaped(400, kind, 40), 0);
    for (std::int64_t step = 1; step < 400; ++step) {
      EXPECT_LE(std::abs(schedule.learning_rate(step) - schedule.learning_rate(step - 1)), 0.0251);
    }
  }
}

TEST(Schedule, AWarmUpLongerThanTheRunIsClampedWithOneWarning) {
  const int before = log::warnings();
  const Schedule schedule(shaped(5, LrKind::kCosine, 700), 0);
  EXPECT_EQ(log::warnings(), before + 1);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(4), 1.0);
}

TEST(Schedule, OneStepIsARun) {
  for (const LrKind kind : {LrKind::kConstant, LrKind::kLinear, LrKind::kCosine, LrKind::kWsd}) {
    EXPECT_EQ(Schedule(shaped(1, kind, 0), 0).learning_rate(0), 1.0);
  }
}

TEST(Schedule, AWarmUpInTokensTakesTheStepsThatHoldThem) {
  Config config = shaped(100, LrKind::kCosine, 0);
  config.schedule.lr.warmup = {5000, true};  // 9.8 steps of 512
  EXPECT_DOUBLE_EQ(Schedule(config, 0).learning_rate(0), 0.1);
}

TEST(Schedule, AStageRewarmsToItsFullRate) {
  Config config = staged();
  config.schedule.stages[1].rewarm = 10;
  const Schedule schedule(config, 0);
  EXPECT_EQ(schedule.learning_rate(39), 1.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(40), 0.1 + 0.9 / 10);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(44), 0.55);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(49), 1.0);
  EXPECT_EQ(schedule.learning_rate(50), 1.0);
}

TEST(Schedule, AStageFromNGovernsTheUpdatesAfterN) {
  const Schedule schedule(staged(), 0);
  EXPECT_EQ(schedule.at(39).stage, 0);
  EXPECT_EQ(schedule.at(39).seq_len, 64);
  EXPECT_EQ(schedule.at(40).stage, 1);
  EXPECT_EQ(schedule.at(40).seq_len, 128);
  EXPECT_EQ(schedule.at(40).geometry.rate, 8);
  EXPECT_EQ(schedule.at(99).geometry.rate, 16);
}

TEST(Schedule, TheFirstStepOfAStageIsMarked) {
  const Schedule schedule(staged(), 0);
  std::vector<std::int64_t> first;
  for (std::int64_t step = 0; step < 100; ++step) {
    if (schedule.at(step).first_of_stage) first.push_back(step);
  }
  EXPECT_EQ(first, (std::vector<std::int64_t>{0, 40, 70}));
}

TEST(Schedule, AStageFromTokensBeginsWithTheStepThatStartsAtOrAfterThem) {
  Config config = staged();
  config.schedule.stages[1].from = {10 * 512, true};
  config.schedule.stages[2].from = {20 * 512 + 1, true};
  const Schedule schedule(config, 0);
  EXPECT_EQ(schedule.stages()[1].first_step, 10);
  EXPECT_EQ(schedule.stages()[2].first_step, 21);
}

TEST(Schedule, TokensBeforeAreThoseOfAllEarlierSteps) {
  const Schedule schedule(staged(), 0);
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < 100; ++step) {
    const StepPlan plan = schedule.at(step);
    EXPECT_EQ(plan.tokens_before, tokens);
    tokens += plan.tokens_per_step;
  }
  EXPECT_EQ(schedule.total_tokens(), tokens);
}

TEST(Schedule, StagesAfterTheEndAreLeftOutWithOneWarning) {
  Config config = staged();
  config.train.steps = 20;
  const int before = log::warnings();
  const Schedule schedule(config, 0);
  EXPECT_EQ(log::warnings(), before + 1);
  ASSERT_EQ(schedule.stages().size(), 1U);
  EXPECT_EQ(schedule.stages()[0].end_step, 20);
}

TEST(Schedule, AStageThatBeginsAtTheEndHasNoStep) {
  Config config = staged();
  config.train.steps = 40;
  EXPECT_EQ(Schedule(config, 0).stages().size(), 1U);
}

TEST(Schedule, ThePageIsTheSameHoweverShortTheRun) {
  Config config = staged();
  config.train.steps = 20;
  EXPECT_EQ(Schedule(config, 0).page(), 256);
}

TEST(Schedule, TokensBecomeStepsRoundedUp) {
  Config config = staged();
  config.train.steps.reset();
  config.train.tokens = 70 * 512 + 1024 + 1;
  EXPECT_EQ(Schedule(config, 0).steps(), 72);
}

TEST(Schedule, EpochsBecomeStepsRoundedUp) {
  Config config = plain(1);
  config.train.steps.reset();
  config.train.epochs = 1.5;
  EXPECT_EQ(Schedule(config, 1000).steps(), 3);  // 1500 tokens
}

TEST(Schedule, EpochsNeedTheSizeOfOne) {
  Config config = plain(1);
  config.train.steps.reset();
  config.train.epochs = 1;
  EXPECT_THROW(Schedule(config, 0), Error);
}

struct MicroCase {
  std::int64_t seq_len, sequences, micro_batch;
};
class AutoMicroBatch : public testing::TestWithParam<MicroCase> {};

TEST_P(AutoMicroBatch, IsTheMostThatDividesAndFits) {
  const auto& [seq_len, sequences, micro_batch] = GetParam();
  Config config = plain(1);
  config.schedule.stages = {stage_from({}, seq_len, 16, seq_len * sequences)};
  const StepPlan plan = Schedule(config, 0).at(0);
  EXPECT_EQ(plan.micro_batch, micro_batch);
  EXPECT_EQ(plan.micro_batch * plan.micro_batches, sequences);
}

INSTANTIATE_TEST_SUITE_P(Table, AutoMicroBatch,
                         testing::Values(MicroCase{256, 24, 12}, MicroCase{512, 12, 6},
                                         MicroCase{256, 16, 16}, MicroCase{64, 7, 7},
                                         MicroCase{256, 23, 1}, MicroCase{4096, 6, 1},
                                         MicroCase{8192, 4, 1}, MicroCase{1, 8192, 4096}));

TEST(Schedule, AGpuTakesMoreTokensAtOnce) {
  Config config = plain(1);
  config.run.device = "cuda";
  config.schedule.stages = {stage_from({}, 1024, 16, 1024 * 64)};
  EXPECT_EQ(Schedule(config, 0).at(0).micro_batch, 16);
}

TEST(Schedule, AGivenMicroBatchIsTaken) {
  Config config = plain(1);
  config.schedule.stages[0].micro_batch = 2;
  EXPECT_EQ(Schedule(config, 0).at(0).micro_batches, 4);
}

TEST(Schedule, EachStageHasItsOwnMicroBatch) {
  Config config = staged();
  config.schedule.stages[0].micro_batch = 1;
  config.schedule.stages[2].micro_batch = 2;
  const Schedule schedule(config, 0);
  EXPECT_EQ(schedule.at(0).micro_batch, 1);
  EXPECT_EQ(schedule.at(40).micro_batch, 4);
  EXPECT_EQ(schedule.at(70).micro_batch, 2);
}

TEST(Schedule, AMicroBatchThatDoesNotDivideOffersTheNearest) {
  Config config = plain(1);
  config.schedule.stages[0].micro_batch = 3;
  try {
    const Schedule schedule(config, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_STREQ(error.what(),
                 "tokens_per_step is 512; it must be a multiple of 192 (3 sequences "
                 "of 64 tokens). Try 384 or 576.");
  }
}

TEST(Schedule, IsPure) {
  Config config = staged();
  config.schedule.lr = {.kind = LrKind::kWsd, .warmup = {7, false}, .min_ratio = 0.01};
  const Schedule forward(config, 0);
  const Schedule backward(config, 0);
  std::vector<double> rates;
  for (std::int64_t step = 0; step < 100; ++step) rates.push_back(forward.at(step).learning_rate);
  for (std::int64_t step = 99; step >= 0; --step) {
    EXPECT_EQ(backward.at(step).learning_rate, rates[static_cast<std::size_t>(step)]);
  }
}

TEST(Schedule, AStepPastTheEndIsNone) {
  const Schedule schedule(plain(10), 0);
  EXPECT_THROW(schedule.at(10), Error);
  EXPECT_THROW(schedule.at(-1), Error);
}

TEST(Schedule, AStepFarAwayIsAsCheapAsTheFirst) {
  Config config = plain(1'000'000'000);
  config.schedule.lr.kind = LrKind::kCosine;
  const Schedule schedule(config, 0);
  EXPECT_EQ(schedule.at(999'999'999).learning_rate, 0.1);
  EXPECT_EQ(schedule.at(999'999'999).tokens_before, 999'999'999LL * 512);
}

}  // namespace
}  // namespace nsa
