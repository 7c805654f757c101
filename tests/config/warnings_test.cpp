#include <algorithm>

#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

struct WarningCase {
  std::string name;
  std::string text;
  std::string part;  ///< of one of the warnings
};
class Warning : public testing::TestWithParam<WarningCase> {};

bool warns(const std::string& text, const std::string& part) {
  std::vector<std::string> warnings;
  config_of(text, {}, &warnings);
  return std::any_of(warnings.begin(), warnings.end(), [&part](const std::string& warning) {
    return warning.find(part) != std::string::npos;
  });
}

/// What an override of train.micro_batch beside `stages` is warned of.
std::vector<std::string> warnings_of_an_override(const std::string& stages) {
  std::vector<std::string> warnings;
  config_of("eval: {every: 0}\nrun: {device: cpu}\ntrain: {seq_len: 8192}\nschedule: {stages: " +
                stages + "}\n",
            {"train.micro_batch=1"}, &warnings);
  return warnings;
}

TEST(Warning, AnOverriddenMicroBatchThatNoStageTakesIsTold) {
  EXPECT_EQ(warnings_of_an_override("[{from: 0, micro_batch: 2}]"),
            std::vector<std::string>{"override 1: train.micro_batch has no effect: every entry of "
                                     "schedule.stages has a micro_batch of its own"});
  EXPECT_TRUE(warnings_of_an_override("[{from: 0, micro_batch: 2}, {from: 5}]").empty());
}

/// Nothing to warn about.
const std::string kQuiet = "run: {device: cpu}\ntrain: {seq_len: 8192}\n";

TEST_P(Warning, IsGiven) {
  EXPECT_TRUE(warns(GetParam().text, GetParam().part));
}

TEST_P(Warning, IsNotGivenWithoutCause) {
  EXPECT_FALSE(warns(kQuiet, GetParam().part));
}

INSTANTIATE_TEST_SUITE_P(
    Table, Warning,
    testing::Values(
        WarningCase{"DenseSelection", "train: {seq_len: 1024}\n",
                    ":2:18: train.seq_len is 1024: selection takes every block"},
        WarningCase{"WideWindow", "train: {seq_len: 4096}\nattention: {window: 4096}\n",
                    "the window (4096) covers all of it"},
        WarningCase{"DeadBranch", "train: {seq_len: 16}\n", "shorter than one compressed block"},
        WarningCase{"QuadraticRate", "train: {seq_len: 8192}\nattention: {compress: {rate: 1}}\n",
                    "the cost is quadratic"},
        WarningCase{"FractionalPooling",
                    "train: {seq_len: 8192}\nattention: {compress: {bins: 20}}\n",
                    "20 bins do not divide each other"},
        WarningCase{"ShortContext", "train: {seq_len: 2048}\n", "costs more than dense"},
        WarningCase{"SharedKv", "attention: {share_kv: true}\n", "attention.share_kv is true"},
        WarningCase{"RotatedFlatMlp", "attention: {compress: {phi: mlp_flat, rope: before}}\n",
                    "attention.compress.rope is before"},
        WarningCase{"SmallGroup", "run: {device: cuda}\nmodel: {kv_heads: 16}\n",
                    "1 query heads per KV head"},
        WarningCase{
            "FallingRate",
            "schedule: {stages: [{from: 0, rate: 16}, {from: 5, seq_len: 4096, rate: 8}]}\n",
            "it falls from 16 while the context grows"}),
    [](const auto& given) { return given.param.name; });

TEST(Warnings, TellThatThereIsNoValidation) {
  EXPECT_TRUE(warns("", "data.val is not set"));
}

TEST(Warnings, OfBlocksAreNotForDenseAttention) {
  EXPECT_FALSE(warns("train: {seq_len: 16}\nattention: {kind: dense}\n", "seq_len"));
}

}  // namespace
}  // namespace nsa
