#pragma once

// Device memory that lives as long as one op: partial sums, lists, workspaces of libraries.

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/buffer.h"
#include "core/device.h"

namespace nsa::cuda {

/// Grows while shapes are new and is then one block as large as the largest frame: a run rehearses
/// its steps before the first one, so that none of them allocates. Ops of one stream use it one
/// after the other, so what a frame gave back may be overwritten by the next op only.
class Scratch {
 public:
  Scratch(Device& device, cudaStream_t stream) : device_(&device), stream_(stream) {}

  /// What one op takes; gives it all back at its end.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(&scratch) {}
    ~Frame() { scratch_->rewind(); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// `count` elements, aligned to 256 bytes, contents undefined.
    template <class T>
    T* take(std::int64_t count) {
      return static_cast<T*>(scratch_->take(count * static_cast<std::int64_t>(sizeof(T))));
    }

   private:
    Scratch* scratch_;
  };

  std::int64_t capacity() const;

 private:
  void* take(std::int64_t bytes);
  void rewind() noexcept;

  Device* device_;
  cudaStream_t stream_;
  std::vector<Buffer> chunks_;  ///< more than one only while a new shape is met
  std::vector<std::int64_t> sizes_;
  std::int64_t used_ = 0;   ///< bytes of the last chunk
  std::int64_t taken_ = 0;  ///< by the present frame
  std::int64_t most_ = 0;   ///< of all frames
};

}  // namespace nsa::cuda
