#include <gtest/gtest.h>

#include "core/error.h"
#include "train/resume.h"

namespace nsa {
namespace {

constexpr std::int64_t kTokens = 100'001;

Config config_with_stages(std::int64_t first, std::int64_t second) {
  Config config;
  config.train.steps = 20;
  config.schedule.lr.warmup = {2, false};
  config.schedule.stages = {{.from = {0, false}, .seq_len = first, .rate = 1},
                            {.from = {10, false}, .seq_len = second, .rate = 4}};
  for (StageConfig& stage : config.schedule.stages) {
    stage.tokens_per_step = 3840;
    stage.micro_batch = 1;
  }
  return config;
}

RunState saved_state() {
  RunState state;
  state.step = 5;
  state.loader = {.epoch = 3, .cursor = 960, .dropped = 32};
  state.page = 96;
  state.train_data = 11;
  state.val_data = 12;
  return state;
}

DataPosition position(const Config& config, const DataNow& now) {
  return resume_position(saved_state(), config, Schedule(config, 0), now);
}

TEST(ResumePosition, StaysWhereItWas) {
  const DataPosition same = position(config_with_stages(32, 96), {11, 12, kTokens});
  EXPECT_EQ(same.page, 96);
  EXPECT_EQ(same.loader, saved_state().loader);
}

TEST(ResumePosition, KeepsTheStoredPageWhereShorterStagesDivideIt) {
  const DataPosition shorter = position(config_with_stages(16, 48), {11, 12, kTokens});
  EXPECT_EQ(shorter.page, 96);
  EXPECT_EQ(shorter.loader, saved_state().loader);
}

TEST(ResumePosition, AnotherPageStartsTheNextEpoch) {
  const DataPosition longer = position(config_with_stages(32, 192), {11, 12, kTokens});
  EXPECT_EQ(longer.page, 192);
  EXPECT_EQ(longer.loader, (LoaderState{.epoch = 4, .cursor = 0, .dropped = 32}));
}

TEST(ResumePosition, ChangedTrainingOrValidationDataIsRefused) {
  const Config config = config_with_stages(32, 96);
  for (const DataNow& now : {DataNow{99, 12, kTokens}, DataNow{11, 99, kTokens}}) {
    try {
      position(config, now);
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    }
  }
}

TEST(ResumePosition, RestartBeginsTheNewDataAtItsStart) {
  Config config = config_with_stages(32, 96);
  config.data.on_change = "restart";
  EXPECT_EQ(position(config, {99, 12, kTokens}).loader,
            (LoaderState{.epoch = 0, .cursor = 0, .dropped = 32}));
}

TEST(ResumePosition, IgnoreStaysAtTheSamePlace) {
  Config config = config_with_stages(32, 96);
  config.data.on_change = "ignore";
  EXPECT_EQ(position(config, {99, 12, kTokens}).loader, saved_state().loader);
}

TEST(ResumePosition, APlaceThatShorterDataDoesNotHaveIsTheNextEpoch) {
  Config config = config_with_stages(32, 96);
  config.data.on_change = "ignore";
  EXPECT_EQ(position(config, {99, 12, 500}).loader,
            (LoaderState{.epoch = 4, .cursor = 0, .dropped = 32}));
}

}  // namespace
}  // namespace nsa
