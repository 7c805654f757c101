// An interrupted run is the run that was not interrupted.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/format.h"
#include "promises/moments.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

constexpr int kInterrupted = 75;

/// Sends `signal` when the line of step `step` comes by.
Watch signal_after_step(int step, int signal) {
  const std::string mark = fmt::format(" {}/40 ", step);
  return {.on_line = [mark, signal](const std::string& line, int process) {
    if (line.find(mark) != std::string::npos) kill(process, signal);
  }};
}

/// What `pattern` captures, wherever it matches in a line.
std::vector<double> numbers_in(const std::string& rows, const std::string& pattern) {
  std::vector<double> numbers;
  const std::regex expression(pattern);
  for (auto found = std::sregex_iterator(rows.begin(), rows.end(), expression);
       found != std::sregex_iterator(); ++found) {
    numbers.push_back(std::stod(found->str(1)));
  }
  return numbers;
}

using Resume = TinyRun;

TEST_F(Resume, SeventeenAndTwentyThreeStepsAreForty) {
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("parts", {"run.stop_after=17"}).code, kInterrupted);
  EXPECT_EQ(train("parts").code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, TenAndTenAndTwentyStepsAreForty) {
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("parts", {"run.stop_after=10"}).code, kInterrupted);
  EXPECT_EQ(train("parts", {"run.stop_after=20"}).code, kInterrupted);
  EXPECT_EQ(train("parts").code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, AStopAtTheStageEdgeChangesNothing) {
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("parts", {"run.stop_after=13"}).code, kInterrupted);
  EXPECT_EQ(train("parts").code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, PackedDocumentsAreNoException) {
  ASSERT_EQ(train("straight", {"data.doc_mask=true"}).code, 0);
  EXPECT_EQ(train("parts", {"data.doc_mask=true", "run.stop_after=17"}).code, kInterrupted);
  EXPECT_EQ(train("parts", {"data.doc_mask=true"}).code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, MomentsInBf16AreNoException) {
  const std::string bf16 = "precision.optim_states=bf16";
  ASSERT_EQ(train("straight", {bf16}).code, 0);
  EXPECT_EQ(train("parts", {bf16, "run.stop_after=17"}).code, kInterrupted);
  EXPECT_EQ(train("parts", {bf16}).code, 0);
  expect_same_run("parts", "straight");
  // A run does not change the type of its moments on the way.
  const Outcome other = train("parts", {"precision.optim_states=fp32"});
  EXPECT_EQ(other.code, 4);
  EXPECT_NE(other.err.find("precision.optim_states"), std::string::npos) << other.err;
}

TEST_F(Resume, GoingBackToAnOlderCheckpointSetsTheLaterOnesAside) {
  ASSERT_EQ(train("run", {"checkpoint.every=10"}).code, 0);
  const std::string older = (out("run") / "ckpt/step_00000020").string() + "/";
  EXPECT_EQ(train("run", {"run.stop_after=25"}, {}, {"--resume", older}).code, kInterrupted);
  // The next resume goes on from step 25, not from the step 40 of the run that was left.
  const Outcome next = train("run");
  EXPECT_EQ(next.code, 0);
  EXPECT_NE(next.out.find("step 25 of 40"), std::string::npos) << next.out;
}

TEST_F(Resume, AKillWhileGoingBackLeavesRowsForAllThatIsResumed) {
  ASSERT_EQ(train("run", {"checkpoint.every=10"}).code, 0);
  ASSERT_EQ(train("straight").code, 0);
  const std::filesystem::path file = out("run") / "metrics.jsonl";
  const auto later_rows_went = [file, before = std::filesystem::file_size(file)](int) {
    return std::filesystem::file_size(file) < before;
  };
  bool caught = false;
  train("run", {}, signals_when(later_rows_went, {SIGKILL}, caught),
        {"--resume", (out("run") / "ckpt/step_00000020").string()});
  ASSERT_TRUE(caught);
  EXPECT_EQ(train("run").code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Resume, APathMayBeAFolderOfCheckpointsOfAnotherRun) {
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("first", {"run.stop_after=17", "checkpoint.every=10"}).code, kInterrupted);
  const std::string folder = (out("first") / "ckpt").string();
  const Outcome second = train("second", {}, {}, {"--resume", folder});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.out.find("step 17 of 40"), std::string::npos) << second.out;
  EXPECT_TRUE(tensors("second", 40) == tensors("straight", 40));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(folder) / "step_00000017"));
}

TEST_F(Resume, MustGoesOnFromTheNewest) {
  EXPECT_EQ(train("run", {"run.stop_after=17", "checkpoint.every=10"}).code, kInterrupted);
  const Outcome next = train("run", {"checkpoint.resume=must"});
  EXPECT_EQ(next.code, 0);
  EXPECT_NE(next.out.find("resume    step 17 of 40"), std::string::npos) << next.out;
}

TEST_F(Resume, ATimeLimitSavesAndTheRunGoesOn) {
  const Overrides steps = {"train.steps=100000", "eval.every=0"};
  Overrides limited = steps;
  limited.emplace_back("run.max_minutes=0.01");
  const Outcome stopped = train("parts", limited);
  EXPECT_EQ(stopped.code, kInterrupted) << stopped.err;
  EXPECT_NE(stopped.out.find("run.max_minutes: 0.01"), std::string::npos) << stopped.out;
  const std::vector<double> done = numbers_in(stopped.out, "stopped after step ([0-9]+) of");
  ASSERT_EQ(done.size(), 1U);
  Overrides to_the_end = steps;
  const auto end = static_cast<std::int64_t>(done[0]) + 2;
  to_the_end.push_back(fmt::format("run.stop_after={}", end));
  EXPECT_EQ(train("parts", to_the_end).code, kInterrupted);
  EXPECT_EQ(train("straight", to_the_end).code, kInterrupted);
  expect_same_run("parts", "straight", end);
}

TEST_F(Resume, WallTimeGoesOnWhereItWas) {
  EXPECT_EQ(train("run", {"run.stop_after=17"}).code, kInterrupted);
  EXPECT_EQ(train("run").code, 0);
  const std::vector<double> wall = numbers_in(metrics("run"), R"("wall_s":([^,]+),)");
  ASSERT_EQ(wall.size(), 40U);
  EXPECT_TRUE(std::is_sorted(wall.begin(), wall.end()));
}

TEST_F(Resume, StepsAfterTheCheckpointAreDoneAgainAndTheirRowsSetAside) {
  ASSERT_EQ(train("straight").code, 0);
  // Killed without a save after step 25: the run goes on from step 20.
  const Overrides saving = {"checkpoint.every=20"};
  EXPECT_EQ(train("parts", saving, signal_after_step(25, SIGKILL)).code, 128 + SIGKILL);
  EXPECT_EQ(train("parts", saving).code, 0);
  expect_same_run("parts", "straight");
  EXPECT_TRUE(std::filesystem::exists(out("parts") / "metrics.stale-1.jsonl"));
}

TEST_F(Resume, SigtermSavesAndTheRunGoesOn) {
  ASSERT_EQ(train("straight").code, 0);
  const Outcome stopped = train("parts", {}, signal_after_step(7, SIGTERM));
  EXPECT_EQ(stopped.code, kInterrupted) << stopped.err;
  EXPECT_NE(stopped.out.find("signal TERM"), std::string::npos) << stopped.out;
  EXPECT_EQ(train("parts").code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, ASignalBeforeTheFirstStepIsObeyed) {
  ASSERT_EQ(train("straight").code, 0);
  const Watch at_once{.on_line = [](const std::string& line, int process) {
    if (line.rfind("nsa_train ", 0) == 0) kill(process, SIGINT);
  }};
  EXPECT_EQ(train("parts", {}, at_once).code, kInterrupted);
  EXPECT_EQ(train("parts").code, 0);
  expect_same_run("parts", "straight");
}

TEST_F(Resume, Usr1SavesAndGoesOn) {
  const Outcome outcome = train("run", {}, signal_after_step(7, SIGUSR1));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(metrics("run").find("\"kind\":\"save\""), metrics("run").rfind("\"kind\":\"save\""));
}

TEST_F(Resume, AFinishedRunHasNothingToDo) {
  ASSERT_EQ(train("run").code, 0);
  const std::string before = rows("run");
  const Outcome again = train("run");
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(rows("run"), before);
  EXPECT_NE(again.out.find("final val loss"), std::string::npos) << again.out;
}

TEST_F(Resume, MustWithoutACheckpointExitsFour) {
  EXPECT_EQ(train("run", {}, {}, {"--resume", "must"}).code, 4);
}

TEST_F(Resume, ADamagedCheckpointIsPassedOverForAnOlderOne) {
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("parts", {"run.stop_after=17", "checkpoint.every=10"}).code, kInterrupted);
  std::filesystem::resize_file(out("parts") / "ckpt/step_00000017/rank_00000.bin", 100);
  const Outcome resumed = train("parts");
  EXPECT_EQ(resumed.code, 0);
  EXPECT_NE(resumed.err.find("step_00000017"), std::string::npos) << resumed.err;
  expect_same_run("parts", "straight");
}

TEST_F(Resume, ANamedCheckpointThatIsDamagedExitsFour) {
  EXPECT_EQ(train("run", {"run.stop_after=5"}).code, kInterrupted);
  const std::filesystem::path path = out("run") / "ckpt/step_00000005";
  std::filesystem::resize_file(path / "rank_00000.bin", 100);
  EXPECT_EQ(train("run", {}, {}, {"--resume", path.string()}).code, 4);
  EXPECT_EQ(train("run", {}, {}, {"--verify-ckpt"}).code, 4);
}

TEST_F(Resume, NeverSetsTheOldRunAside) {
  EXPECT_EQ(train("run", {"run.stop_after=5"}).code, kInterrupted);
  EXPECT_EQ(train("run", {}, {}, {"--resume", "never"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(out("run") / "ckpt.stale-1/step_00000005"));
  EXPECT_TRUE(std::filesystem::exists(out("run") / "metrics.stale-1.jsonl"));
}

TEST_F(Resume, ChangedKeysAreNamedAndWin) {
  EXPECT_EQ(train("run", {"run.stop_after=5"}).code, kInterrupted);
  const Outcome changed = train("run", {"optim.lr=1.0e-4"});
  EXPECT_EQ(changed.code, 0);
  EXPECT_NE(changed.out.find("changed   optim.lr: 0.005 -> 0.0001"), std::string::npos)
      << changed.out;
  // Step 6 is the first after the warm-up.
  const std::vector<double> rate = numbers_in(rows("run"), R"("step":6,.*"lr":([^,]+))");
  ASSERT_EQ(rate.size(), 1U);
  EXPECT_NEAR(rate[0], 1e-4, 1e-6);
}

TEST_F(Resume, MoreStepsAreTrainedAndNamed) {
  EXPECT_EQ(train("run", {"train.steps=20"}).code, 0);
  const Outcome longer = train("run");
  EXPECT_EQ(longer.code, 0);
  EXPECT_NE(longer.out.find("changed   train.steps: 20 -> 40"), std::string::npos) << longer.out;
  EXPECT_EQ(numbers_in(rows("run"), R"("type":"train","step":([0-9]+))").size(), 40U);
}

TEST_F(Resume, FewerStepsThanAreDoneAreNothingToDo) {
  EXPECT_EQ(train("run", {"run.stop_after=17"}).code, kInterrupted);
  const Outcome shorter = train("run", {"train.steps=10", "schedule.stages=[]"});
  EXPECT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_NE(shorter.out.find("changed   train.steps: 40 -> 10"), std::string::npos) << shorter.out;
  EXPECT_EQ(numbers_in(rows("run"), R"("type":"train","step":([0-9]+))").size(), 17U);
}

TEST_F(Resume, AnotherModelIsRefusedWithTheParameterThatDiffers) {
  EXPECT_EQ(train("run", {"run.stop_after=5"}).code, kInterrupted);
  const Outcome changed = train("run", {"model.ffn=48"});
  EXPECT_EQ(changed.code, 4);
  EXPECT_NE(changed.err.find("has shape"), std::string::npos) << changed.err;
}

TEST_F(Resume, ChangedDataIsRefusedUnlessAskedFor) {
  EXPECT_EQ(train("run", {"run.stop_after=5"}).code, kInterrupted);
  const std::string other = "data.train=['" + (folder_ / "tokens_val_*.bin").string() + "']";
  const Outcome refused = train("run", {other});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find("data.train"), std::string::npos) << refused.err;
  EXPECT_EQ(train("run", {other, "data.on_change=restart"}).code, 0);
}

}  // namespace
}  // namespace nsa::test
