#include "core/parallel.h"

#include <atomic>
#include <pthread.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"

namespace nsa {
namespace {

TEST(WorkerPool, VisitsEveryIndexOnce) {
  WorkerPool pool(4);
  std::vector<std::atomic<int>> visits(1000);
  for (int repeat = 0; repeat < 20; ++repeat) {
    pool.for_each(1000, [&](std::int64_t i, int worker) {
      ASSERT_LT(worker, 4);
      ++visits[static_cast<std::size_t>(i)];
    });
  }
  for (const auto& count : visits) EXPECT_EQ(count.load(), 20);
}

TEST(WorkerPool, RethrowsAnErrorAndLivesOn) {
  WorkerPool pool(3);
  EXPECT_THROW(pool.for_each(100,
                             [](std::int64_t i, int) {
                               if (i == 50) fail_data("fifty");
                             }),
               Error);
  std::atomic<int> visits{0};
  pool.for_each(10, [&](std::int64_t, int) { ++visits; });
  EXPECT_EQ(visits.load(), 10);
}

TEST(WorkerPool, SaysHowManyThreadsCouldBeStarted) {
  // Stacks beyond the address space: the system starts no thread.
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t huge;
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  try {
    const WorkerPool pool(8);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("OMP_NUM_THREADS"), std::string::npos);
  }
  pthread_setattr_default_np(&before);
}

TEST(WorkerPool, OneThreadNeedsNoOther) {
  WorkerPool pool(1);
  int visits = 0;
  pool.for_each(5, [&](std::int64_t, int worker) {
    EXPECT_EQ(worker, 0);
    ++visits;
  });
  EXPECT_EQ(visits, 5);
}

}  // namespace
}  // namespace nsa
