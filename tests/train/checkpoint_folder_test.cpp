#include "train/checkpoint_folder.h"

#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temp_folder.h"
#include "train/checkpoint.h"
#include "train/stored_model.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

class CheckpointFolder : public ::testing::Test {
 protected:
  CheckpointFolder() {
    config_.dir = (folder_ / "ckpt").string();
    fs::create_directories(config_.dir);
  }

  void save(std::int64_t step) {
    save_checkpoint(config_.dir, test::some_state(step), model_.store, *model_.backend.device);
  }
  /// As the trainer does.
  void save_and_retire(std::int64_t step) {
    save(step);
    retire_checkpoints(config_.dir, config_, step);
  }
  void damage(std::int64_t step) const {
    fs::resize_file(fs::path(config_.dir) / checkpoint_name(step) / "rank_00000.bin", 10);
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> all;
    for (const FoundCheckpoint& found : list_checkpoints(config_.dir)) all.push_back(found.step);
    return all;
  }
  std::int64_t resumed_step() const {
    const auto point = find_resume_point(config_);
    return point ? point->manifest.state.step : -1;
  }
  void expect_refused() const {
    try {
      find_resume_point(config_);
      FAIL() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    }
  }

  test::TempFolder folder_;
  test::StoredModel model_;
  CheckpointConfig config_;
};

using Steps = std::vector<std::int64_t>;

TEST_F(CheckpointFolder, StepsAreOrderedAsNumbers) {
  for (const char* name : {"step_9000", "step_10000", "step_00000007", "step_x", "other"}) {
    fs::create_directories(fs::path(config_.dir) / name);
  }
  EXPECT_EQ(steps(), (Steps{7, 9000, 10000}));
}

TEST_F(CheckpointFolder, KeepsTheNewest) {
  config_.keep_last = 2;
  for (const std::int64_t step : {9, 10, 11, 100}) save_and_retire(step);
  EXPECT_EQ(steps(), (Steps{11, 100}));
}

TEST_F(CheckpointFolder, KeepEveryExemptsItsMultiples) {
  config_.keep_last = 1;
  config_.keep_every = 10;
  for (std::int64_t step = 5; step <= 35; step += 5) save_and_retire(step);
  EXPECT_EQ(steps(), (Steps{10, 20, 30, 35}));
}

TEST_F(CheckpointFolder, TheOneJustSavedStaysWhateverIsAsked) {
  config_.keep_last = 0;
  save_and_retire(5);
  EXPECT_EQ(steps(), (Steps{5}));
}

TEST_F(CheckpointFolder, TheOneJustSavedStaysBelowDamagedLaterOnes) {
  config_.keep_last = 1;
  save(20);
  damage(20);
  save_and_retire(15);
  EXPECT_EQ(steps().front(), 15);
}

TEST_F(CheckpointFolder, AutoTakesTheNewest) {
  for (const std::int64_t step : {9, 10, 8}) save(step);
  EXPECT_EQ(resumed_step(), 10);
}

TEST_F(CheckpointFolder, AutoPassesOverADamagedOne) {
  for (const std::int64_t step : {8, 9}) save(step);
  damage(9);
  EXPECT_EQ(resumed_step(), 8);
}

TEST_F(CheckpointFolder, AutoRefusesWhenAllAreDamaged) {
  save(8);
  damage(8);
  expect_refused();
}

TEST_F(CheckpointFolder, AutoStartsFreshWhereThereIsNone) {
  EXPECT_EQ(resumed_step(), -1);
}

TEST_F(CheckpointFolder, MustRefusesWhereThereIsNone) {
  config_.resume = "must";
  expect_refused();
}

TEST_F(CheckpointFolder, APathThatIsDamagedIsRefused) {
  for (const std::int64_t step : {8, 9}) save(step);
  damage(9);
  config_.resume = (fs::path(config_.dir) / checkpoint_name(9)).string();
  expect_refused();
}

TEST_F(CheckpointFolder, APathTakesThatOne) {
  for (const std::int64_t step : {8, 9}) save(step);
  config_.resume = (fs::path(config_.dir) / checkpoint_name(8)).string();
  EXPECT_EQ(resumed_step(), 8);
}

TEST_F(CheckpointFolder, NeverMovesTheFolderAside) {
  save(8);
  config_.resume = "never";
  EXPECT_EQ(resumed_step(), -1);
  EXPECT_FALSE(fs::exists(config_.dir));
  EXPECT_TRUE(fs::exists(folder_ / "ckpt.stale-1" / checkpoint_name(8)));
}

TEST_F(CheckpointFolder, LaterOnesAreSetAside) {
  for (const std::int64_t step : {8, 9, 10}) save(step);
  set_aside_later(config_.dir, 8);
  EXPECT_EQ(steps(), (Steps{8}));
  EXPECT_TRUE(fs::exists(folder_ / "ckpt.stale-1" / checkpoint_name(10)));
}

TEST_F(CheckpointFolder, LeftoversOfAKilledSaveAreRemoved) {
  fs::create_directories(fs::path(config_.dir) / "step_00000012.tmp");
  clean_leftovers(config_.dir);
  EXPECT_TRUE(fs::is_empty(config_.dir));
}

TEST_F(CheckpointFolder, LeftoversOfAKilledRemovalAreRemoved) {
  fs::create_directories(fs::path(config_.dir) / "step_00000012.gone");
  clean_leftovers(config_.dir);
  EXPECT_TRUE(fs::is_empty(config_.dir));
}

TEST_F(CheckpointFolder, ACheckpointThatWasBeingReplacedComesBack) {
  save(12);
  const fs::path path = fs::path(config_.dir) / checkpoint_name(12);
  fs::rename(path, path.string() + ".old");
  EXPECT_EQ(resumed_step(), 12);
}

TEST_F(CheckpointFolder, NoRoomForOneIsRefused) {
  try {
    check_free_space(config_, std::numeric_limits<std::int64_t>::max());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
  }
}

}  // namespace
}  // namespace nsa
