// kill -9 in a loop: whatever moment the process dies at, `resume: auto` ends where the undisturbed
// run ends. NSA_KILLS sets how many times a run is killed (scripts/kill_loop.sh).

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "core/format.h"
#include "core/philox.h"
#include "promises/moments.h"
#include "promises/tiny_run.h"

namespace nsa::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int kKilled = 128 + SIGKILL;

std::int64_t wanted_kills() {
  const char* text = std::getenv("NSA_KILLS");
  return text == nullptr ? 8 : std::stoll(text);
}

/// When to kill: some time after the start, after a number of steps, or after a save was begun.
struct Moment {
  enum class Kind : std::uint8_t { kStart, kStep, kSave } kind = Kind::kStart;
  int count = 0;  ///< steps or saves
  microseconds later{0};
};

/// Half of the moments lie in saves, a quarter in the start, the others anywhere.
Moment moment(std::uint64_t seed, std::int64_t index) {
  const auto bits = philox(seed, 0, static_cast<std::uint64_t>(index));
  const int count = static_cast<int>(1 + bits[1] % 3);
  switch (bits[0] % 4) {
    case 0:
      return {.kind = Moment::Kind::kStart, .later = microseconds(bits[2] % 60'000)};
    case 1:
      return {.kind = Moment::Kind::kStep, .count = count, .later = microseconds(bits[2] % 20'000)};
    default:
      return {.kind = Moment::Kind::kSave,
              .count = count,
              .later = microseconds(bits[3] % 2 == 0 ? 0 : bits[2] % 4'000)};
  }
}

/// Counts the saves that it sees begin, and waits until there were `count`.
bool wait_for_save(const fs::path& checkpoints, int count, const std::atomic<bool>& ended) {
  bool before = has_half_a_save(checkpoints);  // left by the kill before this start
  while (!ended) {
    const bool now = has_half_a_save(checkpoints);
    if (now && !before && --count <= 0) return true;
    before = now;
    std::this_thread::sleep_for(microseconds(50));
  }
  return false;
}

Watch kill_at(const Moment& moment, const fs::path& checkpoints, std::atomic<int>& steps) {
  return {.on_line =
              [&steps](const std::string& line, int) {
                if (line.rfind("step ", 0) == 0) ++steps;
              },
          .beside =
              [&steps, moment, checkpoints](int process, const std::atomic<bool>& ended) {
                if (moment.kind == Moment::Kind::kSave) {
                  wait_for_save(checkpoints, moment.count, ended);
                  // The save may be over by now: without a delay, the kill waits for one to hit.
                  if (moment.later.count() == 0) {
                    signal_at(process, ended, [&] { return has_half_a_save(checkpoints); },
                              {SIGKILL});
                    return;
                  }
                }
                while (!ended && steps < moment.count && moment.kind == Moment::Kind::kStep) {
                  std::this_thread::sleep_for(microseconds(50));
                }
                std::this_thread::sleep_for(moment.later);
                kill(process, SIGKILL);
              }};
}

std::int64_t number_of(const std::smatch& found) {
  return std::stoll(found.str(1));
}

/// The last number that `pattern` captures, or `otherwise`.
std::int64_t last_number(const std::string& text, const std::string& pattern,
                         std::int64_t otherwise) {
  const std::regex expression(pattern);
  for (auto found = std::sregex_iterator(text.begin(), text.end(), expression);
       found != std::sregex_iterator(); ++found) {
    otherwise = number_of(*found);
  }
  return otherwise;
}

class KillLoop : public TinyRun {
 protected:
  struct Tally {
    std::int64_t kills = 0;
    std::int64_t in_saves = 0;   ///< a half save was left behind
    std::int64_t in_starts = 0;  ///< no step was reported
  };

  void SetUp() override {
    TinyRun::SetUp();
    ASSERT_GE(encode_shards(1'400), 4U);
  }

  /// Kills run "killed" again and again, until it was killed as often as wanted.
  Tally kill_loop(std::uint64_t seed, const Overrides& overrides) const {
    Tally tally;
    std::int64_t saved = 0;  // the last step that a run said it saved
    for (std::int64_t index = 0; tally.kills < wanted_kills(); ++index) {
      std::atomic<int> steps = 0;
      const std::string half_before = half_a_save(out("killed") / "ckpt");
      const Outcome outcome =
          train("killed", overrides, kill_at(moment(seed, index), out("killed") / "ckpt", steps));
      if (outcome.code != kKilled) {
        ADD_FAILURE() << "start " << index << " ended with " << outcome.code << ": " << outcome.err;
        return tally;
      }
      ++tally.kills;
      const std::string half = half_a_save(out("killed") / "ckpt");
      if (!half.empty() && half != half_before) ++tally.in_saves;
      const Outcome verified = train("killed", {}, {}, {"--verify-ckpt"});
      EXPECT_EQ(verified.out.find("damaged"), std::string::npos) << verified.out;
      if (steps == 0) ++tally.in_starts;
      const std::int64_t resumed = last_number(outcome.out, "resume    step ([0-9]+) of", saved);
      EXPECT_GE(resumed, saved) << "a save was lost: " << outcome.out;
      saved = last_number(outcome.out, "saved .*/step_([0-9]+)", saved);
    }
    return tally;
  }

  void expect_the_undisturbed_end(std::uint64_t seed, const Overrides& more) const {
    const std::int64_t steps = 40 + 6 * wanted_kills();
    Overrides overrides = {fmt::format("train.steps={}", steps)};
    ASSERT_EQ(train("straight", overrides).code, 0);
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Tally tally = kill_loop(seed, overrides);
    const Outcome last = train("killed", overrides);
    ASSERT_EQ(last.code, 0) << last.err;
    expect_same_run("killed", "straight", steps);
    EXPECT_GT(tally.in_saves, 0);
    std::cout << fmt::format("{} kills: {} in saves, {} before a step was reported\n", tally.kills,
                             tally.in_saves, tally.in_starts);
  }
};

TEST_F(KillLoop, EndsAsTheUndisturbedRunWithASaveEachStep) {
  expect_the_undisturbed_end(1, {"checkpoint.every=1", "checkpoint.keep_last=2"});
}

TEST_F(KillLoop, EndsAsTheUndisturbedRunWithOneCheckpointKept) {
  expect_the_undisturbed_end(2, {"checkpoint.every=2", "checkpoint.keep_last=1"});
}

}  // namespace
}  // namespace nsa::test
