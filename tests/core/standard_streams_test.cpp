#include "core/standard_streams.h"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(StandardStreams, NoLaterFileTakesTheNumberOfAClosedOne) {
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  hold_standard_streams();
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_GT(file, STDERR_FILENO);
  close(file);
  if (input >= 0) {
    dup2(input, STDIN_FILENO);
    close(input);
  }
}

TEST(StandardStreams, APipeThatNobodyReadsEndsNoProgram) {
  hold_standard_streams();
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_LT(write(ends[1], "x", 1), 0);
  close(ends[1]);
}

TEST(StandardStreams, AFileThatMayGrowNoFurtherEndsNoProgram) {
  hold_standard_streams();
  EXPECT_EQ(std::raise(SIGXFSZ), 0);
}

}  // namespace
}  // namespace nsa
