#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

TEST(Override, ReplacesTheValueOfTheFile) {
  EXPECT_EQ(config_of("model: {layers: 2}\n", {"model.layers=3"}).model.layers, 3);
}

TEST(Override, TheLastOneWins) {
  EXPECT_EQ(config_of("", {"model.layers=3", "model.layers=5"}).model.layers, 5);
}

TEST(Override, TakesLists) {
  const Config config = config_of("", {"attention.dense_layers=[0, 3]"});
  EXPECT_EQ(config.attention.dense_layers, (std::vector<std::int64_t>{0, 3}));
}

TEST(Override, TakesAWholeSchedule) {
  const Config config =
      config_of("", {"schedule.stages=[{from: 0, rate: 8}, {from: 10, seq_len: 4096}]"});
  ASSERT_EQ(config.schedule.stages.size(), 2U);
  EXPECT_EQ(config.schedule.stages[1].rate, 8);
}

TEST(Override, TakesASectionAsAMap) {
  EXPECT_EQ(config_of("", {"attention.select={top_n: 8, local: 3}"}).attention.select.local, 3);
}

TEST(Override, KeepsWhatStandsBehindASecondEqualsSign) {
  EXPECT_EQ(config_of("", {"run.name=a=b"}).run.name, "a=b");
}

TEST(Override, OfTheStepsReplacesTokensOfTheFile) {
  const Config config = config_of("train: {tokens: 5M}\n", {"train.steps=8"});
  EXPECT_EQ(config.train.steps, 8);
  EXPECT_FALSE(config.train.tokens.has_value());
}

TEST(Override, OfEpochsReplacesStepsOfAnEarlierOne) {
  const Config config = config_of("", {"train.steps=8", "train.epochs=1.5"});
  EXPECT_FALSE(config.train.steps.has_value());
  EXPECT_EQ(config.train.epochs, 1.5);
}

TEST(Override, OfThePresetLeavesTheKeysOfTheFile) {
  const Config config = config_of("model: {preset: tiny, layers: 7}\n", {"model.preset=350m"});
  EXPECT_EQ(config.model.layers, 7);
  EXPECT_EQ(config.model.hidden, 1024);
}

TEST(Override, PathsCountFromTheWorkingDirectory) {
  const Config config = config_of("", {"data.val=v/*.bin", "tokenizer.model=tok.model"});
  EXPECT_EQ(config.data.val.at(0), (std::filesystem::current_path() / "v/*.bin").string());
  EXPECT_EQ(config.tokenizer.model, (std::filesystem::current_path() / "tok.model").string());
}

class BadOverride : public testing::TestWithParam<BadCase> {};

TEST_P(BadOverride, IsNamedByItsNumber) {
  EXPECT_EQ(refusal_of("", {"train.steps=10", GetParam().text}), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadOverride,
    testing::Values(
        BadCase{"NoValue", "train.steps",
                "override 2: \"train.steps\" must read key=value, such as train.steps=100"},
        BadCase{"NoKey", "=5", "override 2: \"=5\" must read key=value, such as train.steps=100"},
        BadCase{"UnknownKey", "train.stpes=5",
                "override 2: unknown key train.stpes; did you mean train.steps?"},
        BadCase{"BrokenYaml", "attention.dense_layers=[1",
                "override 2: broken YAML: end of sequence flow not found"},
        BadCase{"WrongType", "train.steps=abc",
                "override 2: train.steps is abc; it must be a whole number, at least 1 and at most "
                "1073741824"},
        BadCase{"Emptied", "model.layers=",
                "override 2: model.layers is null; it must be a whole number, at least 1 and at "
                "most 4096"},
        BadCase{"ASection", "model=5",
                "override 2: model is 5; it is a section with keys of its own"},
        BadCase{"WhatDoesNotFit", "attention.compress.rate=24",
                "override 2: attention.compress.rate is 24; it must divide attention.select.block "
                "(64). Try 16 or 32."}),
    case_name);

}  // namespace
}  // namespace nsa
