#pragma once

// Small tables from the host to the device without waiting for either.

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace nsa::cuda {

/// Two pinned host buffers that take turns: a copy is queued, and the host goes on. Waits only when
/// both are still being copied.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Queues a copy of host bytes, which may be changed at once.
  void upload(void* device, const void* host, std::int64_t bytes);

 private:
  struct Slot {
    void* memory = nullptr;
    std::int64_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };

  cudaStream_t stream_;
  std::array<Slot, 2> slots_{};
  std::size_t next_ = 0;
};

}  // namespace nsa::cuda
