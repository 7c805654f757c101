#include <algorithm>
#include <limits>
#include <optional>

#include "core/buffer.h"
#include "kernels/common/check.h"
#include "kernels/matmul_tuner.h"

namespace nsa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;
constexpr int kRounds = 3;

__device__ __forceinline__ std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 30U;
  value *= 0xBF58476D1CE4E5B9ULL;
  value ^= value >> 27U;
  value *= 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

/// One thread: every so-many-th word. Adds a hash of each word and its place to `sum`: whole
/// numbers, so in any order. Reads each word once.
__global__ void __launch_bounds__(kThreads)
    hash_kernel(unsigned long long* sum, const std::uint16_t* words, std::int64_t count) {
  std::uint64_t own = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    own += mix((static_cast<std::uint64_t>(i) << 16U) + words[i]);
  }
  atomicAdd(sum, static_cast<unsigned long long>(own));
}

/// Hashes of results, in memory of its own.
class Hasher {
 public:
  Hasher(Device& device, cudaStream_t stream)
      : stream_(stream), sum_(device, sizeof(unsigned long long)) {}

  std::uint64_t operator()(const Tensor& tensor) {
    auto* sum = static_cast<unsigned long long*>(sum_.data());
    check(cudaMemsetAsync(sum, 0, sizeof(*sum), stream_));
    const std::int64_t words = tensor.bytes() / 2;
    const auto blocks = std::clamp<std::int64_t>((words + kThreads - 1) / kThreads, 1, kMostBlocks);
    hash_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_>>>(
        sum, static_cast<const std::uint16_t*>(tensor.data()), words);
    check_launch("hash_kernel");
    unsigned long long hash = 0;
    check(cudaMemcpyAsync(&hash, sum, sizeof(hash), cudaMemcpyDeviceToHost, stream_));
    check(cudaStreamSynchronize(stream_));
    return hash;
  }

 private:
  cudaStream_t stream_;
  Buffer sum_;
};

/// Two events on a stream.
class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Milliseconds of what `body` queues; waits for it.
  template <class Body>
  float milliseconds(const Body& body) {
    check(cudaEventRecord(begin_, stream_));
    body();
    check(cudaEventRecord(end_, stream_));
    check(cudaEventSynchronize(end_));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

cublasLtMatmulAlgo_t fastest_of(const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                const Tensor& out, bool keep_out,
                                const std::function<bool(const cublasLtMatmulAlgo_t&)>& launch,
                                Device& device, cudaStream_t stream) {
  Buffer kept(device, keep_out ? out.bytes() : 0);
  const auto copy = [&](void* to, const void* from) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(out.bytes()), cudaMemcpyDeviceToDevice,
                          stream));
  };
  if (keep_out) copy(kept.data(), out.data());
  Hasher hash(device, stream);
  Timer timer(stream);
  std::optional<std::uint64_t> wanted;
  float best = std::numeric_limits<float>::infinity();
  cublasLtMatmulAlgo_t chosen = candidates.front();
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    if (keep_out) copy(out.data(), kept.data());
    if (!launch(candidate)) continue;
    const std::uint64_t found = hash(out);
    if (!wanted) wanted = found;
    if (found != *wanted) continue;
    for (int round = 0; round < kRounds; ++round) {
      const float ms = timer.milliseconds([&] { launch(candidate); });
      if (ms < best) {
        best = ms;
        chosen = candidate;
      }
    }
  }
  if (keep_out) copy(out.data(), kept.data());
  check(cudaStreamSynchronize(stream));  // before `kept` goes
  return chosen;
}

}  // namespace nsa::cuda
