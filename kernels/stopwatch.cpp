#include "kernels/stopwatch.h"

#include <utility>

#include "kernels/common/check.h"

namespace nsa::cuda {

EventStopwatch::EventStopwatch(cudaStream_t stream) : stream_(stream) {
  const auto make = [] {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event));
    return Event(event);
  };
  for (Interval& one : ring_) one = {.begin = make(), .end = make()};
}

void EventStopwatch::start() {
  if (count_ == kIntervals) read_oldest();
  check(cudaEventRecord(interval(first_ + count_).begin.get(), stream_));
}

void EventStopwatch::stop() noexcept {
  // What fails here is a fault of an earlier kernel, and the next checked call tells it.
  if (cudaEventRecord(interval(first_ + count_).end.get(), stream_) == cudaSuccess) ++count_;
}

double EventStopwatch::take_seconds() {
  while (count_ > 0) read_oldest();
  return std::exchange(seconds_, 0.0);
}

void EventStopwatch::read_oldest() {
  const Interval& oldest = interval(first_);
  float milliseconds = 0;
  check(cudaEventSynchronize(oldest.end.get()));
  check(cudaEventElapsedTime(&milliseconds, oldest.begin.get(), oldest.end.get()));
  seconds_ += static_cast<double>(milliseconds) * 1e-3;
  first_ = (first_ + 1) % kIntervals;
  --count_;
}

}  // namespace nsa::cuda
