#include "kernels/common/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/check.h"

namespace nsa::cuda {
namespace {

constexpr std::int64_t kLeast = std::int64_t{1} << 16;

}  // namespace

void Staging::release(Slot& slot) noexcept {
  if (slot.copied != nullptr) cudaEventDestroy(slot.copied);
  if (slot.memory != nullptr) cudaFreeHost(slot.memory);
}

Staging::~Staging() {
  for (Slot& slot : small_.slots) release(slot);
  for (Slot& slot : large_.slots) release(slot);
}

void Staging::upload(void* device, const void* host, std::int64_t bytes) {
  if (bytes == 0) return;
  Slot& slot = bytes <= kSmall ? small_.turn() : large_.turn();
  if (slot.copied == nullptr) {
    check(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming));
  } else {
    check(cudaEventSynchronize(slot.copied));
  }
  if (slot.capacity < bytes) {
    if (slot.memory != nullptr) check(cudaFreeHost(slot.memory));
    slot.memory = nullptr;
    slot.capacity = std::max(kLeast, bytes + bytes / 2);
    check(
        cudaHostAlloc(&slot.memory, static_cast<std::size_t>(slot.capacity), cudaHostAllocDefault));
  }
  std::memcpy(slot.memory, host, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(device, slot.memory, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                        stream_));
  check(cudaEventRecord(slot.copied, stream_));
}

}  // namespace nsa::cuda
