// The small parts of the trainer: guard, sampling, progress line, lock, signals.

#include <csignal>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temp_folder.h"
#include "train/guard.h"
#include "train/progress.h"
#include "train/run_lock.h"
#include "train/sampler.h"
#include "train/signals.h"
#include "train/start_report.h"

namespace nsa {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NonFiniteGuard, LetsFiniteStepsUpdate) {
  NonFiniteGuard guard({.on_nonfinite = "stop"}, 0);
  EXPECT_EQ(guard.judge(3.4, 1e30), Verdict::kUpdate);
}

TEST(NonFiniteGuard, StopsAtANonFiniteLossOrNorm) {
  NonFiniteGuard guard({.on_nonfinite = "stop"}, 0);
  EXPECT_EQ(guard.judge(kNan, 1.0), Verdict::kStop);
  EXPECT_EQ(guard.judge(3.4, kInfinity), Verdict::kStop);
  EXPECT_EQ(guard.skipped(), 0);
}

TEST(NonFiniteGuard, SkipsAndCountsUntilTheLimit) {
  NonFiniteGuard guard({.on_nonfinite = "skip", .max_skips = 2}, 1);
  EXPECT_EQ(guard.judge(kNan, kNan), Verdict::kSkip);
  EXPECT_EQ(guard.skipped(), 2);
  EXPECT_EQ(guard.judge(kNan, kNan), Verdict::kStop);
}

TEST(SampleToken, TemperatureZeroTakesTheLargestAndTheLowerIdOfATie) {
  const std::vector<double> logits = {1.0, 5.0, 5.0, 2.0};
  EXPECT_EQ(sample_token(logits, 0, 0, 0.999), 1);
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<double> logits = {std::log(0.2), std::log(0.5), std::log(0.3)};
  // By inversion over ids in order of their probability: 1, 2, 0.
  EXPECT_EQ(sample_token(logits, 1, 0, 0.49), 1);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.51), 2);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.79), 2);
  EXPECT_EQ(sample_token(logits, 1, 0, 0.81), 0);
}

TEST(SampleToken, TopKLeavesTheOthersOut) {
  const std::vector<double> logits = {1.0, 3.0, 2.0, 2.9};
  for (double uniform = 0.005; uniform < 1; uniform += 0.01) {
    const std::int32_t id = sample_token(logits, 5.0, 2, uniform);
    EXPECT_TRUE(id == 1 || id == 3) << id;
  }
}

TEST(SampleToken, ALowTemperatureSharpens) {
  const std::vector<double> logits = {0.0, 1.0};
  EXPECT_EQ(sample_token(logits, 10.0, 0, 0.6), 0);
  EXPECT_EQ(sample_token(logits, 0.1, 0, 0.6), 1);
}

TEST(ProgressLine, SaysWhatTheManualShows) {
  const TrainRow row{.step = 1200,
                     .tokens = 0,
                     .epoch = 0,
                     .loss = 3.4127,
                     .grad_norm = 0.31,
                     .lr = 5.9e-4,
                     .tok_s = 468123,
                     .mem_gib = 62.1,
                     .data_wait = 0.003,
                     .nsa = NsaRow{},
                     .skipped = 0};
  EXPECT_EQ(
      progress_line({.row = row, .steps = 20000, .val_loss = 3.4502, .seconds_left = 9660.0}),
      "step   1200/20000  loss 3.4127  val 3.4502  gnorm 0.31  lr 5.9e-04  468k tok/s  62.10 GiB  "
      "data 0.3%  nsa r16 n16 w512  eta 2h41");
}

TEST(ProgressLine, LeavesOutWhatThereIsNot) {
  const std::string line =
      progress_line({.row = {}, .steps = 10, .val_loss = {}, .seconds_left = {}});
  EXPECT_EQ(line.find("val"), std::string::npos);
  EXPECT_EQ(line.find("nsa"), std::string::npos);
  EXPECT_EQ(line.find("eta"), std::string::npos);
}

TEST(Texts, CountsAreGroupedByThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

TEST(Texts, DurationsHaveTheirLargestUnits) {
  EXPECT_EQ(duration_text(9.4), "9s");
  EXPECT_EQ(duration_text(725), "12m05");
  EXPECT_EQ(duration_text(9660), "2h41");
}

TEST(RunLock, RefusesASecondOwnerAndNamesTheFirst) {
  const test::TempFolder folder;
  const RunLock first(folder.path(), std::chrono::milliseconds(0));
  try {
    const RunLock second(folder.path(), std::chrono::milliseconds(0));
    FAIL() << "two owners";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("process " + std::to_string(::getpid())), std::string::npos) << message;
    EXPECT_NE(message.find(" on host "), std::string::npos) << message;
  }
}

TEST(RunLock, IsFreeAgainWhenItsOwnerIsGone) {
  const test::TempFolder folder;
  { const RunLock first(folder.path(), std::chrono::milliseconds(0)); }
  EXPECT_NO_THROW(RunLock(folder.path(), std::chrono::milliseconds(0)));
}

TEST(SignalWatch, TellsStopFromSave) {
  SignalWatch watch({.stop = {"TERM"}, .save = {"USR1"}});
  EXPECT_FALSE(watch.stop_requested());
  std::raise(SIGUSR1);
  EXPECT_FALSE(watch.stop_requested());
  EXPECT_TRUE(watch.take_save_request());
  EXPECT_FALSE(watch.take_save_request());
  std::raise(SIGTERM);
  EXPECT_TRUE(watch.stop_requested());
  EXPECT_EQ(watch.stop_name(), "TERM");
}

TEST(SignalWatch, RefusesAnUnknownName) {
  try {
    const SignalWatch watch({.stop = {"TREM"}, .save = {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("TREM"), std::string::npos);
  }
}

}  // namespace
}  // namespace nsa
