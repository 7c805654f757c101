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
  /// Where the next bytes come from.
  struct Position {
    std::size_t chunk = 0;
    std::int64_t before = 0;  ///< bytes of the chunks before it
    std::int64_t used = 0;    ///< bytes used of it
  };

 public:
  explicit Scratch(Device& device) : device_(&device) { add_chunk(kSmallestChunk); }

  /// Everything taken through a Frame is given back when it ends; frames nest.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), at_(scratch.at_) {}
    ~Frame() { scratch_.at_ = at_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// `count` elements with undefined contents.
    template <class T>
    T* take(std::int64_t count) {
      return static_cast<T*>(scratch_.take(count * static_cast<std::int64_t>(sizeof(T))));
    }

   private:
    Scratch& scratch_;
    Position at_;
  };

  // Which worker takes which index is chance, so a worker may meet its largest use late in a run.
  // To keep that from allocating, every loop ends by giving all workers what one of them needed.

  /// Before a loop: what is in use now belongs to the caller of the loop.
  void begin_loop() { loop_begin_ = loop_peak_ = in_use(); }
  /// After it: the most bytes that a body had in use.
  std::int64_t loop_need() const { return loop_peak_ - loop_begin_; }
  /// Makes sure that a body may use `need` bytes without an allocation.
  void provide(std::int64_t need) {
    if (capacity_ < loop_begin_ + need) add_chunk(need);
  }

 private:
  static constexpr std::int64_t kAlignment = 64;
  static constexpr std::int64_t kSmallestChunk = std::int64_t{1} << 20;

  void* take(std::int64_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    while (at_.chunk < chunks_.size() && at_.used + bytes > chunks_[at_.chunk].bytes()) {
      at_ = {at_.chunk + 1, at_.before + chunks_[at_.chunk].bytes(), 0};
    }
    if (at_.chunk == chunks_.size()) add_chunk(bytes);
    void* data = static_cast<char*>(chunks_[at_.chunk].data()) + at_.used;
    at_.used += bytes;
    loop_peak_ = std::max(loop_peak_, in_use());
    return data;
  }

  std::int64_t in_use() const { return at_.before + at_.used; }
  void add_chunk(std::int64_t bytes) {
    chunks_.emplace_back(*device_, std::max(bytes, kSmallestChunk));
    capacity_ += chunks_.back().bytes();
  }

  Device* device_;
  std::deque<Buffer> chunks_;
  std::int64_t capacity_ = 0;
  Position at_;
  std::int64_t loop_begin_ = 0;
  std::int64_t loop_peak_ = 0;
};

}  // namespace nsa::cpu
