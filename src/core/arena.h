#pragma once

// Arena: a bump allocator over one Buffer. Planned once, filled and rewound every micro-step.

#include <cstdint>
#include <initializer_list>

#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"

namespace nsa {

/// Two ways to use it: with a capacity of 0 and `measure` it hands out addresses that must not be
/// touched and only counts (the plan); with a real capacity it hands out memory. The same code
/// walks both, so the plan cannot drift from the use.
class Arena {
 public:
  /// Counts only: take() returns defined tensors whose memory must not be touched.
  static Arena measuring();
  /// Owns `bytes` on `device`.
  Arena(Device& device, std::int64_t bytes);

  /// A tensor with undefined contents, aligned to 64 bytes. Throws when the arena is full: the
  /// plan was wrong, which is our fault.
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);

  std::int64_t mark() const { return used_; }
  /// Gives back everything taken since `mark`.
  void rewind(std::int64_t mark);
  std::int64_t capacity() const { return capacity_; }
  /// The largest number of bytes ever in use.
  std::int64_t high_water() const { return high_water_; }

 private:
  Arena() = default;
  Buffer buffer_;
  bool measuring_ = false;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
  std::int64_t high_water_ = 0;
};

}  // namespace nsa
