#pragma once

// Sums and maxima over a warp or a block, in an order that depends on the block size alone.

namespace nsa::cuda {

constexpr int kWarpSize = 32;

/// The sum over the warp, in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, lanes);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, lanes));
  }
  return value;
}

/// The sum over a one-dimensional block of kThreads, in every thread. Calls must be separated by
/// the two barriers inside, which this has: it may be called twice in a row.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ T parts[kWarps];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T total = parts[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) total += parts[warp];
  return total;
}

template <int kThreads>
__device__ __forceinline__ float block_max(float value) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ float parts[kWarps];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float most = parts[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) most = fmaxf(most, parts[warp]);
  return most;
}

}  // namespace nsa::cuda
