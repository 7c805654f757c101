#pragma once

// WorkerPool: a fixed set of threads that share out the indices of a loop.

#include <cstdint>
#include <functional>
#include <memory>

namespace nsa {

/// The calling thread is worker 0. Results must not depend on which worker takes which index: ops
/// cut their work by shape, never by the number of threads.
class WorkerPool {
 public:
  /// body(index, worker) with 0 <= worker < size(), for scratch memory of one's own.
  using Body = std::function<void(std::int64_t index, int worker)>;

  /// Called on the calling thread before and after every loop, while no worker runs.
  struct Hooks {
    std::function<void()> before;
    std::function<void()> after;
  };

  explicit WorkerPool(int threads, Hooks hooks = {});
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const;
  /// Calls body once for every index in [0, count), in any order, and returns when all are done.
  /// The first exception is rethrown here. Not reentrant: a body must not call it.
  void for_each(std::int64_t count, const Body& body);

  /// OMP_NUM_THREADS where it is a positive number, else the number of cores.
  static int default_threads();

 private:
  void share_out(std::int64_t count, const Body& body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nsa
