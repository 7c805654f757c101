#include "core/arena.h"

#include <algorithm>

namespace nsa {
namespace {

constexpr std::int64_t kAlignment = 64;
// Any non-null, aligned base serves for counting: nobody reads or writes through it.
constexpr std::uintptr_t kMeasuringBase = 4096;

}  // namespace

Arena Arena::measuring() {
  Arena arena;
  arena.measuring_ = true;
  return arena;
}

Arena::Arena(Device& device, std::int64_t bytes) : buffer_(device, bytes), capacity_(bytes) {}

Tensor Arena::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  auto* base = measuring_
                   ? reinterpret_cast<char*>(kMeasuringBase)  // NOLINT(performance-no-int-to-ptr)
                   : static_cast<char*>(buffer_.data());
  const Tensor tensor(base + used_, dtype, shape);
  const std::int64_t rounded = (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  if (!measuring_ && used_ + rounded > capacity_) {
    fail("Arena: " + std::to_string(used_ + rounded) + " bytes wanted, " +
         std::to_string(capacity_) + " planned");
  }
  used_ += rounded;
  high_water_ = std::max(high_water_, used_);
  return tensor;
}

void Arena::rewind(std::int64_t mark) {
  check(mark >= 0 && mark <= used_, "Arena: rewind to a mark that was never set");
  used_ = mark;
}

}  // namespace nsa
