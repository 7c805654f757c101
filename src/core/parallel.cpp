#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace nsa {

struct WorkerPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable finished;
  const Body* body = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::uint64_t generation = 0;
  int running = 0;
  bool stop = false;
  std::exception_ptr error;
  Hooks hooks;
  std::vector<std::thread> threads;

  void work(int worker) {
    try {
      for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*body)(i, worker);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next.store(count);
    }
  }

  void end_threads() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    start.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void run(int worker) {
    std::uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      work(worker);
      const std::lock_guard lock(mutex);
      if (--running == 0) finished.notify_one();
    }
  }
};

WorkerPool::WorkerPool(int threads, Hooks hooks) : state_(std::make_unique<State>()) {
  state_->hooks = std::move(hooks);
  check(threads >= 1, "WorkerPool: needs at least one thread");
  for (int worker = 1; worker < threads; ++worker) {
    try {
      state_->threads.emplace_back([this, worker] { state_->run(worker); });
    } catch (const std::system_error&) {
      state_->end_threads();
      fail_runtime("only " + std::to_string(worker) + " of " + std::to_string(threads) +
                   " threads can be started; set OMP_NUM_THREADS to the number of cores");
    }
  }
}

WorkerPool::~WorkerPool() {
  state_->end_threads();
}

int WorkerPool::size() const {
  return static_cast<int>(state_->threads.size()) + 1;
}

void WorkerPool::for_each(std::int64_t count, const Body& body) {
  if (count <= 0) return;
  State& s = *state_;
  if (s.hooks.before) s.hooks.before();
  if (count == 1 || s.threads.empty()) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
  } else {
    share_out(count, body);
  }
  if (s.hooks.after) s.hooks.after();
}

void WorkerPool::share_out(std::int64_t count, const Body& body) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.body = &body;
    s.count = count;
    s.next.store(0);
    s.error = nullptr;
    s.running = static_cast<int>(s.threads.size());
    ++s.generation;
  }
  s.start.notify_all();
  s.work(0);
  std::unique_lock lock(s.mutex);
  s.finished.wait(lock, [&] { return s.running == 0; });
  if (s.error) std::rethrow_exception(s.error);
}

int WorkerPool::default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(text);  // NOLINT(cert-err34-c): anything but a number reads as 0
    if (threads > 0) return threads;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace nsa
