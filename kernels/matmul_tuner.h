#pragma once

// Which of cuBLASLt's algorithms a shape gets.

#include <functional>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "core/device.h"
#include "core/tensor.h"

namespace nsa::cuda {

/// The fastest of `candidates` among those that give the same bits as the first, so that what a run
/// computes does not depend on how the clock ticked. `launch` queues the product with one of them
/// on `stream` and tells whether it could. `out` is the product's result; it holds afterwards what
/// it held before when `keep_out`, else any values. Waits for the GPU; takes memory for the time of
/// the call when `keep_out`.
cublasLtMatmulAlgo_t fastest_of(const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                const Tensor& out, bool keep_out,
                                const std::function<bool(const cublasLtMatmulAlgo_t&)>& launch,
                                Device& device, cudaStream_t stream);

}  // namespace nsa::cuda
