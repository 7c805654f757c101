#include "train/signals.h"

#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "core/error.h"

namespace nsa {
namespace {

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

TEST(SignalWatch, AfterItsReleaseASignalEndsTheProcess) {
  const auto twice = [] {
    SignalWatch watch({.stop = {"INT"}, .save = {}});
    std::raise(SIGINT);
    watch.release();
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), ::testing::KilledBySignal(SIGINT), "");
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
