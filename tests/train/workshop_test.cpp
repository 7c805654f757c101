#include "train/workshop.h"

#include <gtest/gtest.h>

#include "config/parse.h"
#include "support/temp_folder.h"

namespace nsa {
namespace {

/// A run of 24 sequences of 256 tokens a step, then 12 of 512 where `stages` has both; all is auto.
Config parsed(const std::string& stages) {
  const test::TempFolder folder;
  test::spill(folder / "run.yaml",
              "data: {train: [/x.bin]}\ntrain: {seq_len: 256, tokens_per_step: 6144, steps: 10}\n"
              "schedule: {stages: " +
                  stages + "}\n");
  return parse_config((folder / "run.yaml").string(), {}, nullptr);
}

const char* const kTwo = "[{from: 0}, {from: 5, seq_len: 512}]";

Config printed_and_read(const Config& config) {
  const test::TempFolder folder;
  test::spill(folder / "run.yaml", print_config(config));
  return parse_config((folder / "run.yaml").string(), {}, nullptr);
}

TEST(Choices, AMicroBatchIsChosenForEachStage) {
  const Config chosen = with_choices(parsed(kTwo));
  EXPECT_EQ(chosen.schedule.stages[0].micro_batch, 12);
  EXPECT_EQ(chosen.schedule.stages[1].micro_batch, 6);
}

TEST(Choices, OfAStageAfterTheEndAreMadeToo) {
  const Config chosen = with_choices(parsed("[{from: 0}, {from: 50, seq_len: 512}]"));
  EXPECT_EQ(chosen.schedule.stages[1].micro_batch, 6);
}

TEST(Choices, AGivenMicroBatchStays) {
  const Config chosen =
      with_choices(parsed("[{from: 0, micro_batch: 2}, {from: 5, seq_len: 512}]"));
  EXPECT_EQ(chosen.schedule.stages[0].micro_batch, 2);
  EXPECT_EQ(chosen.schedule.stages[1].micro_batch, 6);
}

TEST(Choices, ArePrintedSoThatTheyReadBack) {
  for (const char* stages : {"[]", "[{from: 0, rewarm: 3}]", kTwo}) {
    const Config chosen = with_choices(parsed(stages));
    EXPECT_EQ(printed_and_read(chosen), chosen) << stages;
    EXPECT_EQ(print_config(chosen).find("micro_batch: auto"), std::string::npos) << stages;
  }
}

TEST(Choices, OfALoneStageArePrintedInTrain) {
  EXPECT_NE(print_config(with_choices(parsed("[]"))).find("\n  micro_batch: 12\n"),
            std::string::npos);
}

TEST(Choices, MadeTwiceAreTheSame) {
  const Config chosen = with_choices(parsed(kTwo));
  EXPECT_EQ(with_choices(chosen), chosen);
}

TEST(Choices, LeaveTheFingerprint) {
  const Config config = parsed(kTwo);
  const Config chosen = with_choices(config);
  EXPECT_NE(chosen.run.device, config.run.device);
  EXPECT_NE(chosen.precision.compute, config.precision.compute);
  EXPECT_EQ(config_fingerprint(chosen), config_fingerprint(config));
}

}  // namespace
}  // namespace nsa
