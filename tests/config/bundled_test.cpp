#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "yaml_file.h"

namespace nsa {
namespace {

const std::string kTiny = std::string(NSA_SOURCE_DIR) + "/configs/tiny.yaml";

TEST(Bundled, EveryConfigIsLegal) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(NSA_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(parse_config(entry.path().string(), {}, nullptr)) << entry.path();
  }
}

TEST(Bundled, EveryKeyHasACommentOrStandsInOneThatHas) {
  std::ifstream file(kTiny);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::size_t colon = line.find(':');
    const bool is_key = colon != std::string::npos && colon + 1 < line.size() &&
                        line.find('#') != line.find_first_not_of(' ');
    if (is_key && line.find("- {") == std::string::npos) {
      EXPECT_NE(line.find('#'), std::string::npos) << "line " << number << ": " << line;
    }
  }
}

TEST(Tiny, FindsItsDataBesideTheProject) {
  const Config config = parse_config(kTiny, {}, nullptr);
  const auto data = [](const char* name) {
    return (std::filesystem::path(NSA_SOURCE_DIR) / "data/perl" / name).string();
  };
  EXPECT_EQ(config.data.train.at(0), data("train_*.bin"));
  EXPECT_EQ(config.data.val.at(0), data("val_*.bin"));
  EXPECT_EQ(config.tokenizer.model, data("tok.model"));
}

TEST(Tiny, HasStagesOfDifferentContextLengthAndRate) {
  const auto stages = parse_config(kTiny, {}, nullptr).schedule.stages;
  ASSERT_GE(stages.size(), 2U);
  EXPECT_NE(stages[0].seq_len, stages[1].seq_len);
  EXPECT_NE(stages[0].rate, stages[1].rate);
}

TEST(Tiny, EveryStepHoldsAMultipleOfTwelveSequences) {
  for (const StageConfig& stage : parse_config(kTiny, {}, nullptr).schedule.stages) {
    EXPECT_EQ(stage.tokens_per_step % (12 * stage.seq_len), 0);
  }
}

TEST(Tiny, HasTheGeometryOfItsPreset) {
  const Config config = parse_config(kTiny, {}, nullptr);
  EXPECT_EQ(config.model.preset, "tiny");
  EXPECT_EQ(config.attention.select.block, 16);
  EXPECT_EQ(config.attention.select.top_n, 4);
  EXPECT_EQ(config.attention.window, 32);
}

class TinySteps : public testing::TestWithParam<int> {};

TEST_P(TinySteps, MayBeOverridden) {
  EXPECT_NO_THROW(parse_config(kTiny, {"train.steps=" + std::to_string(GetParam())}, nullptr));
}

INSTANTIATE_TEST_SUITE_P(Table, TinySteps, testing::Values(1, 8, 20, 30, 40, 300, 5000));

}  // namespace
}  // namespace nsa
