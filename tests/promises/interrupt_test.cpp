// Signals at each moment of a run: it stops cleanly, nothing is lost, and the same command goes on
// to the same bytes.

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "core/philox.h"
#include "promises/moments.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;

constexpr int kInterrupted = 75;
constexpr int kAttempts = 20;  // a moment can be missed on a busy machine

class Interrupt : public TinyRun {
 protected:
  fs::path checkpoints(const std::string& name) const { return out(name) / "ckpt"; }

  /// Runs from the start until the moment was caught; signals are sent there.
  Outcome train_and_signal(const std::string& name, const Overrides& overrides,
                           const std::function<bool(int)>& is_now,
                           const std::vector<int>& signals) const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      fs::remove_all(out(name));
      bool caught = false;
      Outcome outcome = train(name, overrides, signals_when(is_now, signals, caught));
      if (caught) return outcome;
    }
    ADD_FAILURE() << "the moment was missed " << kAttempts << " times";
    return {};
  }

  std::function<bool(int)> in_a_save(const std::string& name) const {
    return [folder = checkpoints(name)](int) { return has_half_a_save(folder); };
  }
  /// The handlers stand, the lock does not yet: data are opened and checked, the model is built.
  std::function<bool(int)> in_the_start(const std::string& name) const {
    return [lock = out(name) / "lock"](int process) {
      return handles(process, SIGTERM) && !fs::exists(lock);
    };
  }
  /// Between a row of training and the row of the evaluation that follows it.
  std::function<bool(int)> in_evaluation(const std::string& name, int step) const {
    const std::string before = step == 0
                                   ? R"({"type":"config",)"
                                   : R"({"type":"train","step":)" + std::to_string(step) + ",";
    return [path = out(name) / "metrics.jsonl", before](int) {
      return last_line(path).rfind(before, 0) == 0;
    };
  }
  /// `outcome` is of a run that a signal stopped: it said so, and goes on to the end of the
  /// undisturbed one.
  void expect_stop_and_same_run(const std::string& name, const Outcome& outcome,
                                const std::string& signal) const {
    EXPECT_EQ(outcome.code, kInterrupted) << outcome.err;
    EXPECT_NE(outcome.out.find("signal " + signal), std::string::npos) << outcome.out;
    EXPECT_FALSE(has_half_a_save(checkpoints(name)));
    EXPECT_EQ(train(name, {}, {}, {"--verify-ckpt"}).code, 0);
    ASSERT_EQ(train("straight").code, 0);
    EXPECT_EQ(train(name, {}, {}, {"--resume", "must"}).code, 0);
    expect_same_run(name, "straight");
  }
};

TEST_F(Interrupt, TermWhileTheDataAreCheckedIsObeyedBeforeStepOne) {
  const Outcome outcome = train_and_signal("run", {}, in_the_start("run"), {SIGTERM});
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000000"));
  expect_stop_and_same_run("run", outcome, "TERM");
}

TEST_F(Interrupt, IntWhileTheDataAreCheckedIsObeyedBeforeStepOne) {
  const Outcome outcome = train_and_signal("run", {}, in_the_start("run"), {SIGINT});
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000000"));
  expect_stop_and_same_run("run", outcome, "INT");
}

TEST_F(Interrupt, Usr1WhileTheDataAreCheckedSavesAfterStepOne) {
  const Outcome outcome = train_and_signal("run", {}, in_the_start("run"), {SIGUSR1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000001"));
  ASSERT_EQ(train("straight").code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, TermInTheFirstEvaluationIsObeyed) {
  const Outcome outcome = train_and_signal("run", {}, in_evaluation("run", 0), {SIGTERM});
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000000"));
  expect_stop_and_same_run("run", outcome, "TERM");
}

TEST_F(Interrupt, IntInALaterEvaluationIsObeyedAndTheEvaluationMadeUp) {
  const Outcome outcome = train_and_signal("run", {}, in_evaluation("run", 10), {SIGINT});
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000010"));
  expect_stop_and_same_run("run", outcome, "INT");
}

TEST_F(Interrupt, StopsAtAnyMomentOfAStepAddUpToTheRun) {
  const Overrides longer = {"train.steps=120"};  // too long for eight stops to reach its end
  ASSERT_EQ(train("straight", longer).code, 0);
  for (std::uint64_t stop = 0; stop < 8; ++stop) {
    // Some steps after the start, then anywhere in reading data, forward, backward or update.
    const auto bits = philox(3, 0, stop);
    std::atomic<std::uint32_t> steps = 0;
    const Watch some_time_later{
        .on_line =
            [&steps](const std::string& line, int) {
              if (line.rfind("step ", 0) == 0) ++steps;
            },
        .beside =
            [&](int process, const std::atomic<bool>& ended) {
              while (!ended && steps < 1 + bits[0] % 3) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
              }
              std::this_thread::sleep_for(std::chrono::microseconds(bits[1] % 10'000));
              if (!ended) kill(process, stop % 2 == 0 ? SIGTERM : SIGINT);
            }};
    const Outcome outcome = train("run", longer, some_time_later);
    ASSERT_EQ(outcome.code, kInterrupted) << "stop " << stop << ": " << outcome.err;
  }
  EXPECT_EQ(train("run", longer, {}, {"--resume", "must"}).code, 0);
  expect_same_run("run", "straight", 120);
}

TEST_F(Interrupt, TermInTheLastEvaluationLeavesNothingUndone) {
  const Outcome outcome = train_and_signal("run", {}, in_evaluation("run", 40), {SIGTERM});
  // The evaluation may have been at its last batch.
  EXPECT_TRUE(outcome.code == kInterrupted || outcome.code == 0) << outcome.err;
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("run", {}, {}, {"--resume", "must"}).code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, Usr1InAnEvaluationSavesAfterIt) {
  const Outcome outcome = train_and_signal("run", {}, in_evaluation("run", 10), {SIGUSR1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(checkpoints("run") / "step_00000010"));
  ASSERT_EQ(train("straight").code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, TermDuringASaveLeavesThatSaveWhole) {
  const Outcome outcome =
      train_and_signal("run", {"checkpoint.every=5"}, in_a_save("run"), {SIGTERM});
  // The save was that of a fifth step, and no further step was begun.
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("stopped after step [0-9]*[05] of")))
      << outcome.out;
  expect_stop_and_same_run("run", outcome, "TERM");
}

TEST_F(Interrupt, IntDuringASaveLeavesThatSaveWhole) {
  const Outcome outcome =
      train_and_signal("run", {"checkpoint.every=5"}, in_a_save("run"), {SIGINT});
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("stopped after step [0-9]*[05] of")))
      << outcome.out;
  expect_stop_and_same_run("run", outcome, "INT");
}

TEST_F(Interrupt, Usr1DuringASaveSavesOnceMoreAfterTheNextStep) {
  const fs::path last = checkpoints("run") / "step_00000040.tmp";
  const auto in_an_early_save = [this, last](int) {
    return has_half_a_save(checkpoints("run")) && !fs::exists(last);
  };
  const Outcome outcome =
      train_and_signal("run", {"checkpoint.every=5"}, in_an_early_save, {SIGUSR1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::regex after_next(R"re("step":[0-9]*[16],"kind":"save")re");
  EXPECT_TRUE(std::regex_search(metrics("run"), after_next)) << outcome.out;
  ASSERT_EQ(train("straight").code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, SignalsOfAllKindsAtOnceAreOneStop) {
  const Outcome outcome = train_and_signal("run", {"checkpoint.every=5"}, in_a_save("run"),
                                           {SIGUSR1, SIGTERM, SIGINT, SIGUSR1});
  EXPECT_EQ(outcome.code, kInterrupted) << outcome.err;
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("run").code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, ASecondIntWhileTheLastSaveIsWrittenDoesNotHarmIt) {
  const Watch twice{.on_line = [](const std::string& line, int process) {
    if (line.find(" 7/40 ") != std::string::npos) kill(process, SIGINT);
    if (line.rfind("saved ", 0) == 0) kill(process, SIGINT);
  }};
  const Outcome outcome = train("run", {}, twice);
  // Which it is depends on how soon after the save the second one comes.
  EXPECT_TRUE(outcome.code == kInterrupted || outcome.code == 128 + SIGINT) << outcome.code;
  EXPECT_EQ(train("run", {}, {}, {"--verify-ckpt"}).code, 0);
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("run", {}, {}, {"--resume", "must"}).code, 0);
  expect_same_run("run", "straight");
}

TEST_F(Interrupt, AStopWhileTheRunLeavesChangesNothing) {
  const Watch often{.beside = [](int process, const std::atomic<bool>& ended) {
    signal_at(process, ended, [process] { return handles(process, SIGINT); }, {SIGINT});
    while (!ended && handles(process, SIGINT)) kill(process, SIGTERM);
  }};
  const Outcome outcome = train("run", {}, often);
  EXPECT_TRUE(outcome.code == kInterrupted || outcome.code == 128 + SIGTERM) << outcome.code;
  ASSERT_EQ(train("straight").code, 0);
  EXPECT_EQ(train("run", {}, {}, {"--resume", "must"}).code, 0);
  expect_same_run("run", "straight");
}

}  // namespace
}  // namespace nsa::test
