#pragma once

// Scratch memory of CPU ops, one per worker: grows to its largest use, then never allocates again.
// The first chunk is there from the start: which worker takes which index varies, and one that had
// nothing to do in the first step must not allocate in a later one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/buffer.h"

namespace nsa::cpu {

/// Hands out aligned memory until the Frame that took it ends. Addresses stay valid in between: a
/// full chunk is followed by another, never moved.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(&device) {
    chunks_.emplace_back(device, kSmallestChunk);
  }

  /// Everything taken through a Frame is given back when it ends; frames nest.
  class Frame {
   public:
    explicit Frame(Scratch& scratch)
        : scratch_(scratch), chunk_(scratch.chunk_), used_(scratch.used_) {}
    ~Frame() {
      scratch_.chunk_ = chunk_;
      scratch_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// `count` elements with undefined contents.
    template <class T>
    T* take(std::int64_t count) {
      return static_cast<T*>(scratch_.take(count * static_cast<std::int64_t>(sizeof(T))));
    }

   private:
    Scratch& scratch_;
    std::size_t chunk_;
    std::int64_t used_;
  };

 private:
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kSmallestChunk = std::int64_t{1} << 20;

  void* take(std::int64_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].bytes()) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      chunks_.emplace_back(*device_, std::max(bytes, kSmallestChunk));
      used_ = 0;
    }
    void* data = static_cast<char*>(chunks_[chunk_].data()) + used_;
    used_ += bytes;
    return data;
  }

  Device* device_;
  std::deque<Buffer> chunks_;
  std::size_t chunk_ = 0;
  std::int64_t used_ = 0;
};

}  // namespace nsa::cpu
