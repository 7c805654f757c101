#include "config/stages.h"

#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

struct RateCase {
  std::int64_t seq_len, rate;
};
class AutoRate : public testing::TestWithParam<RateCase> {};

TEST_P(AutoRate, FollowsTheContextLength) {
  EXPECT_EQ(auto_rate(GetParam().seq_len), GetParam().rate);
}

INSTANTIATE_TEST_SUITE_P(Thresholds, AutoRate,
                         testing::Values(RateCase{1, 1}, RateCase{16, 1}, RateCase{2047, 1},
                                         RateCase{2048, 1}, RateCase{2049, 8}, RateCase{8191, 8},
                                         RateCase{8192, 8}, RateCase{8193, 16}, RateCase{32767, 16},
                                         RateCase{32768, 16}, RateCase{32769, 32},
                                         RateCase{131072, 32}));

std::vector<StageConfig> stages_of(const std::string& stages, const std::string& rest = "") {
  return config_of("schedule: {stages: " + stages + "}\n" + rest).schedule.stages;
}

TEST(Stages, NoneIsOne) {
  const Config config = config_of("train: {seq_len: 4096}\n");
  ASSERT_EQ(config.schedule.stages.size(), 1U);
  EXPECT_EQ(config.schedule.stages[0], (StageConfig{.from = {},
                                                    .seq_len = 4096,
                                                    .rate = 16,
                                                    .tokens_per_step = 524288,
                                                    .micro_batch = std::nullopt,
                                                    .rewarm = 0}));
}

TEST(Stages, WhatAnEntryLeavesOutStays) {
  const auto stages = stages_of(
      "[{from: 0, rate: 8}, {from: 10, seq_len: 4096}, {from: 20, tokens_per_step: 1048576}]");
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].seq_len, 2048);
  EXPECT_EQ(stages[1].rate, 8);
  EXPECT_EQ(stages[1].tokens_per_step, 524288);
  EXPECT_EQ(stages[2].seq_len, 4096);
  EXPECT_EQ(stages[2].tokens_per_step, 1048576);
}

TEST(Stages, AnAutoRateIsChosenAnewWhenTheContextGrows) {
  const auto stages = stages_of("[{from: 0, rate: auto}, {from: 10, seq_len: 8192}]");
  EXPECT_EQ(stages[0].rate, 1);
  EXPECT_EQ(stages[1].rate, 8);
}

TEST(Stages, ANumberEndsAnAutoRate) {
  const auto stages =
      stages_of("[{from: 0, rate: auto}, {from: 5, rate: 4}, {from: 10, seq_len: 8192}]");
  EXPECT_EQ(stages[2].rate, 4);
}

TEST(Stages, ARewarmIsNotInherited) {
  const auto stages = stages_of("[{from: 0, rewarm: 5}, {from: 10}]");
  EXPECT_EQ(stages[0].rewarm, 5);
  EXPECT_EQ(stages[1].rewarm, 0);
}

TEST(Stages, AMicroBatchIsTheStagesOwn) {
  const auto stages =
      stages_of("[{from: 0}, {from: 5, micro_batch: 8}, {from: 9}, {from: 12, micro_batch: auto}]",
                "train: {micro_batch: 4}\n");
  EXPECT_EQ(stages[0].micro_batch, 4);
  EXPECT_EQ(stages[1].micro_batch, 8);
  EXPECT_EQ(stages[2].micro_batch, 4);
  EXPECT_EQ(stages[3].micro_batch, std::nullopt);
}

TEST(Stages, WithoutAMicroBatchHaveThatOfTrain) {
  const Config config = config_of("train: {micro_batch: 4}\n");
  EXPECT_EQ(config.schedule.stages[0].micro_batch, 4);
}

TEST(Stages, TheFirstOneIsWhatTrainSays) {
  const Config config =
      config_of("schedule: {stages: [{from: 0, seq_len: 512, rate: 8, micro_batch: 2}]}\n");
  EXPECT_EQ(config.train.seq_len, 512);
  EXPECT_EQ(config.attention.compress.rate, 8);
  EXPECT_EQ(config.train.micro_batch, 2);
}

TEST(Stages, BeginInStepsOrTokens) {
  const auto stages = stages_of("[{from: 0}, {from: 500M}, {from: 2000}]");
  EXPECT_EQ(stages[1].from, (StepsOrTokens{500'000'000, true}));
  EXPECT_EQ(stages[2].from, (StepsOrTokens{2000, false}));
  EXPECT_EQ(stage_first_steps(stages), (std::vector<std::int64_t>{0, 954, 2000}));
}

TEST(Stages, InTokensBeginWithTheFirstStepThatStartsAtOrAfterThem) {
  std::vector<StageConfig> stages = {
      {.from = {}, .seq_len = 10, .rate = 1, .tokens_per_step = 100, .rewarm = 0},
      {.from = {300, true}, .seq_len = 10, .rate = 1, .tokens_per_step = 200, .rewarm = 0},
      {.from = {301, true}, .seq_len = 10, .rate = 1, .tokens_per_step = 50, .rewarm = 0}};
  EXPECT_EQ(stage_first_steps(stages), (std::vector<std::int64_t>{0, 3, 4}));
}

TEST(Stages, TokensAreFoundInTheStageThatHoldsThem) {
  const std::vector<StageConfig> stages = {
      {.from = {}, .seq_len = 10, .rate = 1, .tokens_per_step = 100, .rewarm = 0},
      {.from = {3, false}, .seq_len = 10, .rate = 1, .tokens_per_step = 200, .rewarm = 0}};
  const std::vector<std::int64_t> first_steps = stage_first_steps(stages);
  EXPECT_EQ(first_step_at(stages, first_steps, 0), 0);
  EXPECT_EQ(first_step_at(stages, first_steps, 1), 1);
  EXPECT_EQ(first_step_at(stages, first_steps, 300), 3);
  EXPECT_EQ(first_step_at(stages, first_steps, 301), 4);
  EXPECT_EQ(first_step_at(stages, first_steps, 500), 4);
}

TEST(NearestMultiples, AreTheOnesAroundAndNeverZero) {
  EXPECT_EQ(nearest_multiples(5000, 2048), "4096 or 6144");
  EXPECT_EQ(nearest_multiples(100, 2048), "2048 or 4096");
}

class BadStages : public testing::TestWithParam<BadCase> {};

TEST_P(BadStages, AreRefused) {
  EXPECT_EQ(refusal_of("schedule:\n  stages:\n" + GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadStages,
    testing::Values(
        BadCase{"FirstNotAtZero", "    - {from: 5}\n",
                "run.yaml:4:14: schedule.stages[0].from is 5; the first stage begins at 0"},
        BadCase{"SameStep", "    - {from: 0}\n    - {from: 5}\n    - {from: 5}\n",
                "run.yaml:6:14: schedule.stages[2].from begins the stage at step 5, not after step "
                "5 of the stage before it; let the froms increase"},
        BadCase{"Backwards", "    - {from: 0}\n    - {from: 10M}\n    - {from: 5}\n",
                "run.yaml:6:14: schedule.stages[2].from begins the stage at step 5, not after step "
                "20 of the stage before it; let the froms increase"},
        BadCase{"InTokensBackwards", "    - {from: 0}\n    - {from: 10M}\n    - {from: 1M}\n",
                "run.yaml:6:14: schedule.stages[2].from begins the stage at step 2, not after step "
                "20 of the stage before it; let the froms increase"},
        BadCase{"ContextThatDoesNotDivideThePage",
                "    - {from: 0, seq_len: 1024}\n    - {from: 5, seq_len: 1536}\n",
                "run.yaml:4:26: schedule.stages[0].seq_len is 1024; it must divide the largest "
                "seq_len of the schedule (1536). Try 768 or 1536."},
        BadCase{"TokensThatDoNotDivide",
                "    - {from: 0}\n    - {from: 5, tokens_per_step: 5000}\n",
                "run.yaml:5:34: schedule.stages[1].tokens_per_step is 5000; it must be a multiple "
                "of seq_len (2048) in schedule.stages[1]. Try 4096 or 6144."},
        BadCase{"MicroBatchThatDoesNotDivide",
                "    - {from: 0}\n    - {from: 5, micro_batch: 3, tokens_per_step: 16384}\n",
                "run.yaml:5:50: schedule.stages[1].tokens_per_step is 16384; it must be a multiple "
                "of micro_batch x seq_len (3 x 2048) in schedule.stages[1]. Try 12288 or 18432."},
        BadCase{"MicroBatchOfNone", "    - {from: 0, micro_batch: 0}\n",
                "run.yaml:4:30: schedule.stages[0].micro_batch is 0; it must be at least 1 and at "
                "most 2147483647"},
        BadCase{"NullMicroBatch", "    - {from: 0, micro_batch: null}\n",
                "run.yaml:4:17: schedule.stages[0].micro_batch is null; it must be a whole number, "
                "at least 1 and at most 2147483647, or auto"},
        BadCase{"InheritedTokensThatDoNotDivide",
                "    - {from: 0, tokens_per_step: 6144}\n    - {from: 5, seq_len: 4096}\n",
                "run.yaml:4:34: schedule.stages[0].tokens_per_step is 6144; it must be a multiple "
                "of seq_len (4096) in schedule.stages[1]. Try 4096 or 8192."},
        BadCase{"Rate", "    - {from: 0}\n    - {from: 5, rate: 24}\n",
                "run.yaml:5:23: schedule.stages[1].rate is 24; it must divide "
                "attention.select.block (64). Try 16 or 32."},
        BadCase{"LongBlock", "    - {from: 0}\n    - {from: 5, rate: 64}\n",
                "run.yaml:5:23: schedule.stages[1].rate is 64; with attention.compress.overlap 2 a "
                "compressed block has 128 tokens, more than attention.select.block (64)"}),
    case_name);

}  // namespace
}  // namespace nsa
