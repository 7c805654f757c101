#pragma once

// What CUDA calls return, as errors.

#include <string>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "core/error.h"

namespace nsa::cuda {

/// Throws where a call of the runtime failed, or an earlier kernel did and this call reports it.
inline void check(cudaError_t status, Location at = Location::current()) {
  if (status != cudaSuccess) fail(std::string("CUDA: ") + cudaGetErrorString(status), at);
}

inline void check(cublasStatus_t status, Location at = Location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(std::string("cuBLAS: ") + cublasLtGetStatusString(status), at);
  }
}

/// After every launch: what was wrong with its configuration.
inline void check_launch(const char* kernel, Location at = Location::current()) {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
    fail(std::string("CUDA: launch of ") + kernel + ": " + cudaGetErrorString(status), at);
  }
}

}  // namespace nsa::cuda
