#pragma once

// Bytes from the host to the device without waiting for either.

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace nsa::cuda {

/// Pinned host buffers that take turns: a copy is queued, and the host goes on. Small copies (the
/// tokens of a batch, tables of documents and of the optimiser) have so many buffers that the host
/// can be some micro-batches ahead of the device: it waits only when all are still to be copied.
/// Copies stand in the order of the stream, because what they overwrite is read by the ops before
/// them; they are so short beside a micro-batch that a stream of their own would gain nothing.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Queues a copy of host bytes, which may be changed at once.
  void upload(void* device, const void* host, std::int64_t bytes);

  static constexpr std::int64_t kSmall = std::int64_t{1} << 20;  ///< bytes of a small copy at most
  static constexpr std::size_t kSmallBuffers = 32;

 private:
  struct Slot {
    void* memory = nullptr;
    std::int64_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };
  template <std::size_t kSlots>
  struct Ring {
    std::array<Slot, kSlots> slots{};
    std::size_t next = 0;
    Slot& turn() {
      Slot& slot = slots[next];
      next = (next + 1) % kSlots;
      return slot;
    }
  };

  static void release(Slot& slot) noexcept;

  cudaStream_t stream_;
  Ring<kSmallBuffers> small_;
  Ring<2> large_;
};

}  // namespace nsa::cuda
