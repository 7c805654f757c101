#include "kernels/common/scratch.h"

#include <algorithm>
#include <numeric>

#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kLeast = std::int64_t{1} << 20;  // a chunk is not worth less

}  // namespace

std::int64_t Scratch::capacity() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
}

void* Scratch::take(std::int64_t bytes) {
  const std::int64_t rounded =
      std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  // Chunks met together become one: nothing that ran before may still read the old one.
  if (used_ == 0 && chunks_.size() > 1) {
    const std::int64_t total = std::max(capacity(), rounded);
    check(cudaStreamSynchronize(stream_));
    chunks_.clear();
    sizes_.assign(1, total);
    chunks_.emplace_back(*device_, total);
  }
  if (chunks_.empty() || used_ + rounded > sizes_.back()) {
    sizes_.push_back(std::max(rounded, kLeast));
    chunks_.emplace_back(*device_, sizes_.back());
    used_ = 0;
  }
  char* data = static_cast<char*>(chunks_.back().data()) + used_;
  used_ += rounded;
  return data;
}

void Scratch::rewind() noexcept {
  used_ = 0;
}

}  // namespace nsa::cuda
