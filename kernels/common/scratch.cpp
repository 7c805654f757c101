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
  // At the start of a frame nothing holds on to the chunks: those met together become one, and one
  // that is too small goes before its successor comes, once nothing that ran before reads it.
  const bool too_small = chunks_.size() == 1 && rounded > sizes_.front();
  if (taken_ == 0 && (chunks_.size() > 1 || too_small)) {
    check(cudaStreamSynchronize(stream_));
    chunks_.clear();
    sizes_.clear();
  }
  taken_ += rounded;
  most_ = std::max(most_, taken_);
  if (chunks_.empty() || used_ + rounded > sizes_.back()) {
    const std::int64_t wanted = chunks_.empty() ? most_ : rounded;
    sizes_.push_back(std::max(wanted, kLeast));
    chunks_.emplace_back(*device_, sizes_.back());
    used_ = 0;
  }
  char* data = static_cast<char*>(chunks_.back().data()) + used_;
  used_ += rounded;
  return data;
}

void Scratch::rewind() noexcept {
  used_ = 0;
  taken_ = 0;
}

}  // namespace nsa::cuda
