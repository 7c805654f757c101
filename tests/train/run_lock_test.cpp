#include "train/run_lock.h"

#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temp_folder.h"

namespace nsa {
namespace {

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

}  // namespace
}  // namespace nsa
