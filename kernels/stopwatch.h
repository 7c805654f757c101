#pragma once

// How long a GPU works on something, from events in its stream.

#include <array>
#include <cstddef>
#include <memory>

#include <cuda_runtime_api.h>

#include "core/device.h"

namespace nsa::cuda {

/// Events before and after each interval. They are read when all are in use, the oldest first, or
/// when the sum is asked for: the GPU has much to do until then and never waits for it. Its
/// intervals must not be captured into a graph, whose events cannot be read.
class EventStopwatch final : public Stopwatch {
 public:
  explicit EventStopwatch(cudaStream_t stream);

  void start() override;
  void stop() noexcept override;
  double take_seconds() override;

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
  struct Interval {
    Event begin;
    Event end;
  };
  static constexpr std::size_t kIntervals = 512;

  Interval& interval(std::size_t index) { return ring_[index % kIntervals]; }
  /// Waits for the oldest interval and adds it up.
  void read_oldest();

  cudaStream_t stream_;
  std::array<Interval, kIntervals> ring_{};
  std::size_t first_ = 0;  ///< the oldest that was not read
  std::size_t count_ = 0;  ///< stopped and not read
  double seconds_ = 0;
};

}  // namespace nsa::cuda
